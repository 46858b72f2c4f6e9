"""A copy is believed only if the target holds what was read from the source."""

from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch import limits
from anabranch.errors import ConflictError
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.transfer.digest import NO_NODES
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping, keeping_of
from anabranch.metadata.transfer.survey import no_progress
from anabranch.metadata.transfer.verifying import Expectation

ZOOKEEPER, OXIA = keeping_of("zk:x"), keeping_of("oxia://x")
SOURCE = (
    Record("/", b"", 0, 0, 0, 3),
    Record("/a", b"1", 7, 0, 0),
    Record("/b", b"", 2, 0, 0, 9, None, (IndexKey("i", "k"),)),
    Record("/c", b"3", 5000, 0, 0, 4),
)


async def _each(records: Sequence[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


def held_by(keeping: Keeping, source: Sequence[Record] = SOURCE) -> list[Record]:
    """What such a store has after a copy."""
    return [
        record._replace(
            native_version=keeping.version_after(record),
            next_sequence=record.next_sequence + (0 if keeping.sequences else 1),
        )
        for record in source
    ]


async def check(
    keeping: Keeping, target: Sequence[Record], source: Sequence[Record] = SOURCE
) -> int:
    """How many nodes were found to be as they must be."""
    expected, copied = Expectation(keeping), NO_NODES
    for record in source:
        before, copied = copied, copied.plus(record)
        expected.add(record, copied.exact - before.exact)
    assert expected.whole
    await expected.check(_each(target), copied, no_progress, has_root=True)
    return copied.nodes


@pytest.mark.parametrize("keeping", [EVERYTHING, ZOOKEEPER, OXIA])
async def test_what_arrived_is_believed_in_any_order(keeping: Keeping) -> None:
    assert await check(keeping, held_by(keeping)) == len(SOURCE)
    assert await check(keeping, held_by(keeping)[::-1]) == len(SOURCE)


def test_the_version_after_a_copy() -> None:
    versions = [keeping.version_after(SOURCE[2]) for keeping in (EVERYTHING, ZOOKEEPER, OXIA)]
    assert versions == [2, 2, 8], "an empty parent of Oxia counts its children"
    assert ZOOKEEPER.version_after(SOURCE[3]) == 0
    assert ZOOKEEPER.version_after(Record("/", b"x", 5000, 0, 0)) == 1, "a root has been written to"
    assert not ZOOKEEPER.keeps_version(SOURCE[3])


@pytest.mark.parametrize("keeping", [EVERYTHING, ZOOKEEPER, OXIA])
@pytest.mark.parametrize(
    "change",
    [
        {"value": b"other"},
        {"native_version": 99},
        {"path": "/other"},
        {"next_sequence": 2},
        {"indexes": ()},
        {"session": 5},
    ],
)
async def test_any_difference_is_a_conflict(keeping: Keeping, change: dict[str, object]) -> None:
    target = held_by(keeping)
    target[2] = target[2]._replace(**change)
    with pytest.raises(ConflictError, match=r"in the target|the target has"):
        await check(keeping, target)


@pytest.mark.parametrize("place", range(len(SOURCE)))
async def test_a_missing_node_is_a_conflict(place: int) -> None:
    target = held_by(OXIA)
    del target[place]
    with pytest.raises(ConflictError, match="the target has 3 nodes"):
        await check(OXIA, target)


def test_some_things_only_the_source_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = Record("/x", b"", 0, 0, 0, access=(AccessRight(1, "ip", "::1"),))
    for keeping, whole in ((ZOOKEEPER, False), (OXIA, True)):
        expected = Expectation(keeping)
        expected.add(rights, None)
        assert expected.whole is whole
    monkeypatch.setattr(limits, "METADATA_COPY_COUNTERS_MAX", 1)
    expected = Expectation(OXIA)
    expected.add(SOURCE[0], None)
    assert expected.whole
    expected.add(SOURCE[2], None)
    assert not expected.whole
