"""What two trees are compared by without laying them side by side. Pure.

A digest is a sum over the hashes of single nodes: it does not depend on the order in which they
came, can be written down in the middle and gone on with, and takes the same room for any tree.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from anabranch.metadata.fields import indexes_field, text_field
from anabranch.metadata.store import Record

DIGEST_BYTES: Final = 32
_MASK: Final = (1 << (8 * DIGEST_BYTES)) - 1
_number: Final = int.from_bytes
_NUMBERS: Final = struct.Struct(">qQ")
_RIGHT: Final = struct.Struct(">i")


class Digest(NamedTuple):
    """Of some nodes, ephemeral ones left out."""

    nodes: int = 0
    value_bytes: int = 0
    content: int = 0
    """Over paths and values: what any two stores can have in common."""
    exact: int = 0
    """Over these and versions, sequences, indexes and access rights; times are in neither."""

    def plus(self, record: Record) -> "Digest":
        """With one more node."""
        summing = Summing(self)
        summing.add(record)
        return summing.digest

    def with_exact(self, added: int) -> "Digest":
        """With something more in `exact`."""
        return self._replace(exact=(self.exact + added) & _MASK)

    @property
    def content_text(self) -> str:
        """`content` as it is shown."""
        return f"{self.content:0{2 * DIGEST_BYTES}x}"

    @property
    def exact_text(self) -> str:
        """`exact` as it is shown."""
        return f"{self.exact:0{2 * DIGEST_BYTES}x}"


NO_NODES: Final = Digest()


class Summing:
    """A digest that nodes are added to, for whole trees of them."""

    __slots__ = ("_content", "_exact", "_nodes", "_value_bytes")

    def __init__(self, begun: Digest = NO_NODES) -> None:
        self._nodes, self._value_bytes, self._content, self._exact = begun

    def add(self, record: Record) -> int:
        """One more node, unless it is ephemeral; returns its part of `Digest.exact`."""
        path, value, version, _, _, sequence, session, indexes, access = record
        if session is not None:
            return 0
        # A path has no such byte.
        content = blake2b(path.encode() + b"\0" + value, digest_size=DIGEST_BYTES).digest()
        exact = content + _NUMBERS.pack(version, sequence)
        if indexes:
            keys = sorted(indexes, key=lambda entry: (entry.index, entry.key))
            exact += indexes_field(tuple(keys))
        for right in access:
            exact += b"access" + _RIGHT.pack(right.permissions)
            exact += text_field(right.scheme) + text_field(right.identity)
        part = _number(blake2b(exact, digest_size=DIGEST_BYTES).digest(), "big")
        self._nodes += 1
        self._value_bytes += len(value)
        self._content += _number(content, "big")
        self._exact += part
        return part

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self._nodes

    @property
    def digest(self) -> Digest:
        """Of all so far."""
        return Digest(self._nodes, self._value_bytes, self._content & _MASK, self._exact & _MASK)
