"""Writing the index file of a full segment lets others have the loop."""

import asyncio
from array import array
from pathlib import Path
from typing import Any, cast

from anabranch.journal import Journal
from anabranch.ledgers.index import LedgerIndex, pack_place, packed_length_bytes
from anabranch.ledgers.index_file import decode_index, restore
from anabranch.ledgers.records import Create, encode_fact
from anabranch.ledgers.upkeep import Upkeep
from anabranch.runtime.real_disk import RealDisk

ENTRIES = 300_000
RECORD_BYTES = 40
TURNS_MIN = 30
MEANWHILE_TURN = 5


class StillJournal:
    """Segment 1 is sealed, nothing happens in segment 2."""

    failure = None

    @property
    def files(self) -> "StillJournal":
        return self

    def segments(self) -> list[int]:
        return [1, 2]

    async def size(self, _segment: int) -> int:
        return ENTRIES * RECORD_BYTES


def full_index(*ledger_ids: int) -> LedgerIndex:
    index = LedgerIndex("journal")
    each = ENTRIES // len(ledger_ids)
    for at, ledger_id in enumerate(ledger_ids):
        index.learn(1, encode_fact(Create(ledger_id, 1, {})))
        start = at * each
        places = (pack_place((start + n) * RECORD_BYTES, 30) for n in range(each))
        index.add_run(1, ledger_id, 0, array("Q", places), 0)
    return index


async def write(index: LedgerIndex, folder: Path, meanwhile: Any = None) -> tuple[bytes, int]:
    """The index file, and how many turns of the loop others had until the disk got it."""
    turns = 0
    turns_at_replace = 0

    class WatchedDisk(RealDisk):
        async def replace(self, path: str, content: Any) -> None:
            nonlocal turns_at_replace
            turns_at_replace = turns
            await super().replace(path, content)

        async def free_bytes(self, _path: str) -> int:
            return 1 << 40

    disk = WatchedDisk()
    upkeep = Upkeep(disk, str(folder), index, cast("Journal", StillJournal()), cast("Any", None))
    upkeep.sealed([1], below=2)
    while upkeep._task is not None:
        turns += 1
        if meanwhile is not None and turns == MEANWHILE_TURN:
            meanwhile()
        await asyncio.sleep(0)
    assert upkeep.failure is None
    await upkeep.close()
    disk.close()
    return (folder / "000000000001.index").read_bytes(), turns_at_replace


async def test_a_ledger_that_fills_a_segment_is_written_in_slices(tmp_path: Path) -> None:
    index = full_index(7)
    content, turns = await write(index, tmp_path)
    assert turns >= TURNS_MIN
    again = LedgerIndex("journal")
    restore(again, 1, decode_index(content, 1))
    assert again.ledgers[7].places == index.ledgers[7].places
    assert again.ledgers[7].length_bytes == packed_length_bytes(index.ledgers[7].places)
    assert again.segments[1].used_bytes == index.segments[1].used_bytes


async def test_a_ledger_that_is_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    index = full_index(7, 8, 9)

    def delete() -> None:
        index._forget(7, 7)

    content, _ = await write(index, tmp_path, delete)
    runs = decode_index(content, 1).runs
    assert [run.ledger_id for run in runs] == [8, 9]
    assert list(index.segments[1].ledgers) == [8, 9]
