"""What counts as a difference between a tree and its copy in a store that cannot keep all of it."""

from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.store import Record
from anabranch.metadata.transfer.comparing import compare
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping, keeping_of

ZOOKEEPER, OXIA = keeping_of("zk:here"), keeping_of("oxia://here:1")


def node(version: int, sequence: int, value: bytes = b"", path: str = "/a") -> Record:
    return Record(path, value, version, 0, 0, sequence)


async def fields(
    left: Record, right: Record, keepings: tuple[Keeping, Keeping]
) -> tuple[str, ...] | None:
    async def one(record: Record) -> AsyncIterator[Record]:
        yield record

    async for difference in compare(one(left), one(right), keepings=keepings):
        return difference.fields
    return None


@pytest.mark.goal("core.M8", part="tools", broken_by="diff_knows_no_rule")
@pytest.mark.parametrize(
    ("source", "copy"),
    [
        (node(0, 5), node(4, 5)),
        (node(7, 5), node(7, 8)),
        (node(3, 0), node(3, 4)),
        (node(0, 1), node(0, 1)),
        (node(2, 9, b"x"), node(2, 9, b"x")),
    ],
)
async def test_copy_in_oxia_is_equal(source: Record, copy: Record) -> None:
    assert await fields(source, copy, (ZOOKEEPER, OXIA)) is None
    assert await fields(copy, source, (OXIA, EVERYTHING)) is None, "either way round"


@pytest.mark.goal("core.M8", part="tools", broken_by="diff_knows_no_rule")
@pytest.mark.parametrize(
    ("source", "copy"),
    [
        (node(1000, 3), node(1000, 3)),
        (node(1001, 3), node(0, 3)),
        (node(1001, 3, b"x", "/"), node(1, 3, b"x", "/")),
        (node(5, 0), node(5, 12)),
    ],
)
async def test_copy_in_zookeeper_is_equal(source: Record, copy: Record) -> None:
    assert await fields(source, copy, (OXIA, ZOOKEEPER)) is None


@pytest.mark.parametrize(
    ("source", "copy", "wrong"),
    [
        (node(0, 5), node(3, 5), ("version",)),
        (node(0, 5), node(4, 4), ("sequence",)),
        (node(2, 9, b"x"), node(8, 9, b"x"), ("version",)),
        (node(0, 9, b"x"), node(1001, 9, b"x"), ("version",)),
        (node(2, 9, b"x"), node(2, 7, b"x"), ("sequence",)),
        (node(2, 9, b"x"), node(2, 11, b"x"), ("sequence",)),
    ],
)
async def test_what_oxia_can_keep_must_be_kept(
    source: Record, copy: Record, wrong: tuple[str, ...]
) -> None:
    assert await fields(source, copy, (ZOOKEEPER, OXIA)) == wrong


@pytest.mark.parametrize(
    ("source", "copy", "wrong"),
    [
        (node(5, 3), node(4, 3), ("version",)),
        (node(1001, 3), node(1, 3), ("version",)),
        (node(5, 3), node(5, 2), ("sequence",)),
    ],
)
async def test_what_zookeeper_can_keep_must_be_kept(
    source: Record, copy: Record, wrong: tuple[str, ...]
) -> None:
    assert await fields(source, copy, (EVERYTHING, ZOOKEEPER)) == wrong


async def test_stores_that_keep_everything_are_compared_number_by_number() -> None:
    assert await fields(node(0, 5), node(4, 5), (EVERYTHING, EVERYTHING)) == ("version",)
    assert await fields(node(1001, 3), node(0, 4), (EVERYTHING, EVERYTHING)) == (
        "version",
        "sequence",
    )
