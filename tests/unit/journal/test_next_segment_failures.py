"""A disk that fails while the coming segment is made."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.errors import StoreFailed
from anabranch.journal import Journal
from anabranch.runtime.network import Buffer
from anabranch.testing.failing_disk import FailingDisk

SEGMENT_BYTES = 4000


def fails_with(code: int, disk: FailingDisk) -> None:
    def verdict(path: str, _: Sequence[Buffer]) -> OSError | None:
        return OSError(code, "not today") if path.endswith("2.journal") else None

    disk.verdict = verdict


async def outcome_of_append(journal: Journal, size: int) -> Exception | None:
    told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    journal.append([b"x" * size], told.set_result)
    async with asyncio.timeout(60):
        return await told


async def open_journal(disk: FailingDisk, folder: Path) -> Journal:
    return await Journal.open(
        disk, str(folder), kind=b"test", segment_bytes=SEGMENT_BYTES, replay=lambda *_: None
    )


@pytest.mark.broken_by("next_segment_fails_later")
async def test_nothing_is_acknowledged_after_the_coming_segment_failed(tmp_path: Path) -> None:
    disk = FailingDisk()
    fails_with(errno.EIO, disk)
    journal = await open_journal(disk, tmp_path)
    # More than half of the segment, so that the next is made, which is not needed for long.
    await outcome_of_append(journal, SEGMENT_BYTES // 2)
    while journal._next.is_being_made:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    assert isinstance(await outcome_of_append(journal, 10), StoreFailed)
    assert "000000000002.journal: not today" in str(journal.failure)
    await journal.close()
    disk.close()


async def test_lack_of_room_for_the_coming_segment_leaves_the_one_in_use(tmp_path: Path) -> None:
    disk = FailingDisk()
    fails_with(errno.ENOSPC, disk)
    journal = await open_journal(disk, tmp_path)
    await outcome_of_append(journal, SEGMENT_BYTES // 2)
    while journal._next.is_being_made:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    assert await outcome_of_append(journal, 10) is None
    await journal.close()
    disk.close()
