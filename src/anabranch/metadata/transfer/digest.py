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
_MODULUS: Final = 1 << (8 * DIGEST_BYTES)
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
        if record.session is not None:
            return self
        content = _hash(record.path.encode() + b"\0" + record.value)  # a path has no such byte
        exact = content + _NUMBERS.pack(record.native_version, record.next_sequence)
        if record.indexes:
            keys = sorted(record.indexes, key=lambda entry: (entry.index, entry.key))
            exact += indexes_field(tuple(keys))
        for right in record.access:
            exact += b"access" + _RIGHT.pack(right.permissions)
            exact += text_field(right.scheme) + text_field(right.identity)
        return Digest(
            self.nodes + 1,
            self.value_bytes + len(record.value),
            (self.content + int.from_bytes(content)) % _MODULUS,
            (self.exact + int.from_bytes(_hash(exact))) % _MODULUS,
        )

    @property
    def content_text(self) -> str:
        """`content` as it is shown."""
        return f"{self.content:0{2 * DIGEST_BYTES}x}"

    @property
    def exact_text(self) -> str:
        """`exact` as it is shown."""
        return f"{self.exact:0{2 * DIGEST_BYTES}x}"


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


NO_NODES: Final = Digest()
