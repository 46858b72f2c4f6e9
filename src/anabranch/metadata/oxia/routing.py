"""Which shard a key belongs to, and which server leads it. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import NotFound, ProtocolError
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.requests import parse

_HASHES = 2**32


class Shard(NamedTuple):
    """A part of the key space, cut by hash."""

    number: int
    leader: str
    first_hash: int
    last_hash: int


def key_hash(key: str) -> int:
    """The hash that keys are cut by: the lower half of XXH3."""
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF


class ShardMap:
    """The shards of a namespace, which together hold every hash once."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        """Refuse shards that leave a gap or overlap.

        Raises:
            ProtocolError: if they do.
        """
        self._by_hash = sorted(shards, key=lambda shard: shard.first_hash)
        self._first_hashes = [shard.first_hash for shard in self._by_hash]
        self.shards = tuple(sorted(shards))
        expected = 0
        for shard in self._by_hash:
            if shard.first_hash != expected or shard.last_hash < shard.first_hash:
                raise ProtocolError(f"the shards do not hold every key once: {shards}")
            expected = shard.last_hash + 1
        if expected != _HASHES:
            raise ProtocolError(f"the shards do not hold every key: {shards}")
        if len({shard.number for shard in shards}) != len(shards):
            raise ProtocolError(f"a shard is named twice: {shards}")

    def shard_of(self, key: str) -> int:
        """The number of the shard that a key, or a partition key, belongs to."""
        if len(self.shards) == 1:
            return self.shards[0].number
        return self._by_hash[bisect_right(self._first_hashes, key_hash(key)) - 1].number

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of all shards, in order."""
        return tuple(shard.number for shard in self.shards)


def parse_assignments(message: bytes, namespace: str) -> ShardMap:
    """The shards in a server's answer.

    Raises:
        ProtocolError: if it makes no sense, or keys are cut in a way this client does not know.
        NotFound: if there is no such namespace.
    """
    answer = parse(pb.ShardAssignments, message)
    if namespace not in answer.namespaces:
        raise NotFound(f"the Oxia server knows no namespace {namespace!r}")
    found = answer.namespaces[namespace]
    if found.shard_key_router != pb.XXHASH3:
        raise ProtocolError(f"Oxia cuts keys by {found.shard_key_router}, only XXH3 is known")
    if not 0 < len(found.assignments) <= limits.OXIA_SHARDS_MAX:
        raise ProtocolError(f"{len(found.assignments)} shards")
    return ShardMap(
        [
            Shard(item.shard, item.leader, item.hash_range.first, item.hash_range.last)
            for item in found.assignments
        ]
    )
