"""Names and identities: topics, subscriptions, positions. One parser, used by everybody.

Pure. A name that gets past this module is safe to put into a path, a log line or a URL.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from anabranch.errors import InvalidName

_PART = re.compile(r"^[-=:.\w]+$", re.ASCII)
_PARTITION_SUFFIX = "-partition-"
TOPIC_DOMAINS = ("persistent", "non-persistent")
NAME_CHARACTERS_MAX = 1024
PARTITION_MAX = 2**31 - 1


class Position(NamedTuple):
    """Where an entry is: a ledger and a place in it. Ordered as the entries of one topic are."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


new_position: Final[Callable[[tuple[int, int]], Position]] = partial(tuple.__new__, Position)
"""Make a position without a call of Python's own, which that of `Position` is: for data paths."""

EARLIEST = Position(-1, -1)
"""Before the first entry of any topic."""


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def check_part(kind: str, name: str) -> str:
    """Return the name of a tenant, namespace or cluster if it may be used.

    Raises:
        InvalidName: if it may not.
    """
    if len(name) > NAME_CHARACTERS_MAX or not _PART.match(name) or name in (".", ".."):
        raise InvalidName(f"{kind} {name[:80]!r} has characters that are not allowed")
    return name


def _refuse_disguised(kind: str, name: str) -> None:
    """Refuse what becomes another name, or another place, when it is decoded once more."""
    if _ESCAPE.search(name):
        raise InvalidName(f"{kind} is percent-encoded, and has to be given as it is: {name!r}")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidName(f"{kind} has an empty part, or is a way to elsewhere: {name!r}")


def _refuse_unprintable(kind: str, name: str) -> None:
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidName(f"{kind} must have 1 to {NAME_CHARACTERS_MAX} characters: {name[:80]!r}")
    if not name.isprintable() or name != name.strip():
        raise InvalidName(f"{kind} has control characters or blank edges: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidName(f"{kind} is not valid Unicode: {name!r}") from None


@dataclass(frozen=True, slots=True)
class TopicName:
    """A full topic name, `persistent://tenant/namespace/topic`."""

    domain: str
    tenant: str
    namespace: str
    local: str

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Read a full name or one of Pulsar's short forms (`topic`, `tenant/ns/topic`).

        Raises:
            InvalidName: naming the part that is wrong.
        """
        _refuse_unprintable("topic name", text)
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text
            if "/" not in rest:
                rest = f"public/default/{rest}"
        if domain not in TOPIC_DOMAINS:
            raise InvalidName(f"unknown topic domain {domain!r} in {text!r}")
        parts = rest.split("/", 2)
        if len(parts) != 3:
            raise InvalidName(f"topic name needs tenant/namespace/topic: {text!r}")
        tenant, namespace, local = parts
        for kind, part in (("tenant", tenant), ("namespace", namespace)):
            check_part(kind, part)
        _refuse_unprintable("local topic name", local)
        _refuse_disguised("local topic name", local)
        return cls(domain, tenant, namespace, local)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def is_persistent(self) -> bool:
        """Whether its messages are stored."""
        return self.domain == "persistent"

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        """The index in the name of a partition, -1 for a topic that is none."""
        _, separator, index = self.local.rpartition(_PARTITION_SUFFIX)
        if not separator or len(index) > 10 or not (index.isascii() and index.isdigit()):
            return -1
        number = int(index)
        # As in Pulsar: a number that is written otherwise is just part of a name.
        return number if number <= PARTITION_MAX and str(number) == index else -1

    @property
    def partitioned_local(self) -> str:
        """The local name without the suffix of a partition."""
        if self.partition < 0:
            return self.local
        return self.local.rpartition(_PARTITION_SUFFIX)[0]

    @property
    def encoded_local(self) -> str:
        """The local name as one path segment."""
        return encode_segment(self.local)

    @property
    def managed_ledger_name(self) -> str:
        """The name its managed ledger has in Pulsar's metadata."""
        return f"{self.tenant}/{self.namespace}/{self.domain}/{self.encoded_local}"

    @property
    def schema_id(self) -> str:
        """The name its schema has; shared by all partitions."""
        return f"{self.tenant}/{self.namespace}/{encode_segment(self.partitioned_local)}"


def encode_segment(name: str) -> str:
    """Make any name one path segment, the way Java's URLEncoder does."""
    # quote() leaves "~" alone where Java encodes it, and encodes "*" where Java does not.
    encoded = quote(name, safe="*").replace("%20", "+").replace("~", "%7E")
    return {".": "%2E", "..": "%2E%2E"}.get(encoded, encoded)


def decode_segment(segment: str) -> str:
    """Undo `encode_segment`."""
    return unquote(segment.replace("+", "%20"))


def check_namespace_name(text: str) -> str:
    """Return `tenant/namespace` if it may be one.

    Raises:
        InvalidName: naming the part that is wrong.
    """
    TopicName.parse(f"persistent://{text}/any")
    if text.count("/") != 1:
        raise InvalidName(f"a namespace is named tenant/namespace: {text!r}")
    return text


def check_subscription_name(name: str) -> str:
    """Return the name if it may be used.

    Raises:
        InvalidName: if it may not.
    """
    _refuse_unprintable("subscription name", name)
    if _ESCAPE.search(name) or name in (".", ".."):
        raise InvalidName(f"subscription name is encoded, or a way to elsewhere: {name!r}")
    return name
