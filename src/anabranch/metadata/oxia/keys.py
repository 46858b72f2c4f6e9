"""How paths stand in Oxia's key space, and which ranges of keys hold what. Pure.

Keys are the paths themselves, as Pulsar writes them. Oxia sorts by the number of slashes first and
then by bytes, with "/" above every other byte. So the children of a node lie together, but a
subtree does not: each of its levels is a range of its own.

What is ours alone and no path has keys without a leading slash, where no path can be.
"""

from typing import Final
from urllib.parse import unquote

from anabranch.errors import ProtocolError
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import IndexKey

_SEQUENCE: Final = "anabranch-sequence:"
_PULSE: Final = "anabranch-pulse:"
FILLER: Final = "anabranch-filler"
"""Written to raise a shard's counter, and deleted again."""
INTERNAL: Final = "__oxia/"
LAST_VERSION: Final = f"{INTERNAL}last-version-id"
_NOTIFICATIONS: Final = f"{INTERNAL}notifications/"
_INDEXES: Final = f"{INTERNAL}idx/"
_SESSIONS: Final = f"{INTERNAL}session/"


def server_order(key: str) -> tuple[int, bytes]:
    """A value that sorts as the server sorts keys."""
    slashes = key.count("/")
    if key.endswith("//"):
        slashes -= 1
    if key.startswith(INTERNAL):
        slashes |= 1 << 15
    return slashes, key.encode().replace(b"/", b"\xff")


def children_range(path: str) -> tuple[str, str]:
    """The keys of a node's children: from the first, up to but without the second."""
    above = "" if path == ROOT else path
    return f"{above}/", f"{above}//"


def everything_below(path: str) -> tuple[str, str]:
    """A range that holds every key below a path, and others."""
    return children_range(path)[0], ""


def is_path(key: str) -> bool:
    """Whether a key is a node of the tree, and not something that the store keeps besides."""
    return key.startswith("/")


# --- sequences --------------------------------------------------------------------------------


def sequence_key(parent: str) -> str:
    """Where the count of a parent's sequential children is kept."""
    return _SEQUENCE + parent


def parent_of_sequence_key(key: str) -> str | None:
    """Undo `sequence_key`; None for other keys."""
    return key[len(_SEQUENCE) :] if key.startswith(_SEQUENCE) else None


# --- sessions ---------------------------------------------------------------------------------


def pulse_key(session: int) -> str:
    """What a session writes to on every shard to show that it lives."""
    return f"{_PULSE}{session}"


def is_pulse(key: str) -> bool:
    """Whether it is the `pulse_key` of any session."""
    return key.startswith(_PULSE)


# --- secondary indexes ------------------------------------------------------------------------
# A slash in a key would put the entry on another level. "." and "/" are neighbours in the order of
# characters, so "/" can be written as "." and something, without changing any order.


def escape_index(text: str) -> str:
    """The name of an index, or a key in one, without slashes and in the same order."""
    return text.replace(".", ".\x02").replace("/", ".\x03")


def unescape_index(text: str) -> str:
    """Undo `escape_index`; leaves alone what others wrote."""
    return text.replace(".\x03", "/").replace(".\x02", ".")


def index_range(index: str, first: str, last: str | None) -> tuple[str, str]:
    """Where the server keeps the entries of an index between two keys, the second left out."""
    start = f"{_INDEXES}{escape_index(index)}/"
    return start + escape_index(first), f"{start}/" if last is None else start + escape_index(last)


INDEX_ENTRIES: Final = (f"{INTERNAL}\x00/\x00/", "")
"""Where the server keeps the entries of all indexes, among other things of its own."""


def index_entry(key: str) -> tuple[str, IndexKey] | None:
    """The path that an entry of an index is about, and its index key; None for other keys."""
    if not key.startswith(_INDEXES):
        return None
    index, slash, rest = key[len(_INDEXES) :].partition("/")
    secondary, separator, primary = rest.rpartition("\x01")
    if not slash or not separator:
        return None
    return unquote(primary), IndexKey(unescape_index(index), unescape_index(secondary))


# --- what the server keeps --------------------------------------------------------------------


def notifications_after(offset: int) -> tuple[str, str]:
    """The keys of the batches of notifications after an offset."""
    return f"{_NOTIFICATIONS}{offset + 1:016x}", f"{_NOTIFICATIONS}{2**63 - 1:016x}"


def notifications_at(offset: int) -> tuple[str, str]:
    """The key of the batch at an offset."""
    return f"{_NOTIFICATIONS}{offset:016x}", f"{_NOTIFICATIONS}{offset + 1:016x}"


def offset_of_notifications(key: str) -> int:
    """The offset in the key of a batch."""
    return _number(key, _NOTIFICATIONS)


SESSIONS: Final = (_SESSIONS, f"{_SESSIONS}/")
"""Where the server keeps its sessions."""


def session_of_key(key: str) -> int:
    """The number in the key of a session."""
    return _number(key, _SESSIONS)


def _number(key: str, prefix: str) -> int:
    try:
        return int(key.removeprefix(prefix), 16)
    except ValueError:
        raise ProtocolError(
            f"no number in {key[:200]!r}, which should begin with {prefix}"
        ) from None
