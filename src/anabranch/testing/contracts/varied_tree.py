"""A tree of many nodes with what copies of whole trees get wrong, made anew each time the same."""

from collections.abc import Iterator
from typing import Final

from anabranch import limits
from anabranch.metadata.store import IndexKey, Record

NODES: Final = 10_000
SEQUENCES: Final = {"/seq/few": 7, "/seq/many": 300, "/seq/emptied": 3_000}
"""Parents of sequential nodes, and the number that the next child of each gets."""
LARGE_VERSIONS: Final = (1, 2, 999, 1000, 1001, 30_000, 10**6)
_DEEP: Final = 120
_CREATED_MS: Final = 1_600_000_000_000


def varied_tree(
    nodes: int = NODES, largest_bytes: int = limits.METADATA_VALUE_BYTES_MAX
) -> list[Record]:
    """So many records, parents first; the root is not among them."""
    records = list(_odd_ones(largest_bytes))
    folders = 0
    while len(records) < nodes:
        folder = f"/bulk/f{folders:03}"
        if not folders:
            records.append(_record("/bulk"))
        folders += 1
        records.append(_record(folder, b"" if folders % 2 else b"folder"))
        for i in range(min(97, nodes - len(records))):
            value = (f"{folder}/{i} ".encode() * (1 + i % 7))[: i * 5]
            records.append(
                _record(f"{folder}/n{i * 31 % 97:02}", value, i % 12 if i % 9 == 0 else 0)
            )
    return records


def _record(
    path: str, value: bytes = b"", version: int = 0, next_sequence: int = 0, *keys: IndexKey
) -> Record:
    return Record(
        path, value, version, _CREATED_MS, _CREATED_MS + version, next_sequence, None, keys
    )


def _odd_ones(largest_bytes: int) -> Iterator[Record]:
    yield _record("/empty")
    yield _record("/largest", b"\x00\xff" * (largest_bytes // 2))
    yield _record("/ä€")
    yield _record(
        "/ä€/ß with spaces", "ü 𝄞 \0".encode(), 3, 0, IndexKey("by", "ü"), IndexKey("to", "x")
    )
    yield _record("/%2F:=;")
    yield _record("/%2F:=;/...", b"\r\n\t")
    for depth in range(1, _DEEP + 1):
        yield _record("/deep" + "/d" * (depth - 1), b"down here" if depth == _DEEP else b"")
    # Siblings whose names sort otherwise than their paths do as text.
    for name in ("s", "s/x", "s-", "s.a", "s0"):
        yield _record(f"/{name}", name.encode())
    yield _record("/versions")
    for version in LARGE_VERSIONS:
        yield _record(f"/versions/{version:07}", b"%d" % version, version)
    yield _record("/seq")
    for parent, following in SEQUENCES.items():
        yield _record(parent, b"" if following < 100 else b"counter", 0, following)
        # The last ones are gone: what is left does not say how far the count was.
        for number in range(min(following, 100) - 2):
            yield _record(f"{parent}/n-{number:010}", b"")
