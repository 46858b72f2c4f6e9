"""The URLs of ledger stores. Pure.

memory:                                       forgets everything at the stop
embedded:FOLDER                               in a folder; without a name, in the data folder
bookkeeper:?ensemble=3&write=3&ack=2          bookies that share the server's metadata store
bookkeeper:zk:HOST:PORT/CHROOT?ensemble=3     bookies that have a metadata store of their own
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from anabranch import limits
from anabranch.errors import ConfigError

MEMORY: Final = "memory:"
EMBEDDED: Final = "embedded:"
BOOKKEEPER: Final = "bookkeeper:"
DIGESTS: Final = ("crc32c", "crc32", "hmac", "none")
_COUNTS: Final = ("ensemble", "write", "ack")
_ROOT: Final = "root"
_DIGEST: Final = "digest"
_FRAME_BYTES: Final = "frame_bytes"
_OPTIONS: Final = (*_COUNTS, _DIGEST, _ROOT, _FRAME_BYTES)


@dataclass(frozen=True, slots=True)
class BookKeeperAddress:
    """Where bookies are found, and how ledgers are spread over them."""

    metadata_url: str = ""
    """Of the store in which bookies register; "" for the one that the server uses anyway."""
    ensemble: int = 3
    """Bookies of a ledger."""
    write: int = 3
    """Bookies that each entry is sent to."""
    ack: int = 2
    """Bookies that must have stored an entry before it counts."""
    digest: str = DIGESTS[0]
    root: str = "/ledgers"
    """Below which node of the metadata store the bookies and the ledgers are."""
    frame_bytes: int = limits.BOOKKEEPER_FRAME_BYTES_MAX
    """The bookies' `nettyMaxFrameSizeBytes`: they end a connection that sends more at once."""


def check_ledgers_url(url: str) -> None:
    """Look at a URL without opening anything.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    if url.startswith(BOOKKEEPER):
        parse_bookkeeper(url)
    elif url.startswith(MEMORY) and url != MEMORY:
        raise ConfigError(f"a memory store takes no name: write {MEMORY!r}, not {url!r}")
    elif url != MEMORY and not url.startswith(EMBEDDED):
        raise ConfigError(
            f"unknown ledger store {url!r}: known are '{MEMORY}', '{EMBEDDED}<folder>' and "
            f"'{BOOKKEEPER}?ensemble=3&write=3&ack=2'"
        )


def parse_bookkeeper(url: str) -> BookKeeperAddress:
    """What a URL of bookies says.

    Raises:
        ConfigError: saying what is wrong with it.
    """
    place, _, query = url.removeprefix(BOOKKEEPER).partition("?")
    options = dict(pairs := parse_qsl(query, keep_blank_values=True))
    if len(options) != len(pairs) or (query and len(pairs) != query.count("&") + 1):
        raise ConfigError(f"the options in {url!r} are not NAME=VALUE&NAME=VALUE, each once")
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(
                f"unknown option {name!r} in {url!r}: known are {', '.join(_OPTIONS)}; passwords "
                "and certificates go to the file that ledgers_credentials names"
            )
    usual = BookKeeperAddress()
    # What was not said follows what was, so that a small ensemble needs no further words.
    ensemble = _count(url, options, "ensemble", usual.ensemble)
    write = _count(url, options, "write", min(usual.write, ensemble))
    ack = _count(url, options, "ack", min(usual.ack, write))
    address = BookKeeperAddress(
        place,
        ensemble,
        write,
        ack,
        _digest(url, options.get(_DIGEST, usual.digest)),
        _root(url, options.get(_ROOT, usual.root)),
        _frame_bytes(url, options.get(_FRAME_BYTES, str(usual.frame_bytes))),
    )
    if not address.ensemble >= address.write >= address.ack:
        raise ConfigError(
            f"{url!r} has ensemble {address.ensemble}, write {address.write}, ack {address.ack}: "
            "an entry is written to no more bookies than a ledger has, and waits for no more than "
            "it is written to"
        )
    return address


def identity(url: str) -> str:
    """What of a URL says which store it is; the rest says how it is used from now on."""
    if not url.startswith(BOOKKEEPER):
        return url
    root = parse_bookkeeper(url).root
    place = url.partition("?")[0]
    return place if root == BookKeeperAddress().root else f"{place}?{_ROOT}={root}"


def shares_metadata(url: str) -> bool:
    """Whether a URL is of bookies that register in the metadata store of the server itself."""
    return url.startswith(BOOKKEEPER) and not parse_bookkeeper(url).metadata_url


def _count(url: str, options: dict[str, str], name: str, usual: int) -> int:
    value = options.get(name, str(usual))
    top = limits.BOOKKEEPER_ENSEMBLE_MAX
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= top):
        raise ConfigError(f"{name} in {url!r} is a number of bookies from 1 to {top}")
    return int(value)


def _digest(url: str, name: str) -> str:
    if name not in DIGESTS:
        raise ConfigError(f"digest in {url!r} is one of {', '.join(DIGESTS)}, not {name!r}")
    return name


def _frame_bytes(url: str, value: str) -> int:
    low, high = limits.MIB, limits.BOOKKEEPER_ANSWER_BYTES_MAX
    if not (value.isascii() and value.isdigit() and low <= int(value) <= high):
        raise ConfigError(f"{_FRAME_BYTES} in {url!r} is a number of bytes from {low} to {high}")
    return int(value)


def _root(url: str, path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        raise ConfigError(f"root in {url!r} is a path such as /ledgers, not {path!r}")
    return path
