"""Planted bugs of `anabranch.journal`."""

from collections.abc import Sequence
from typing import Any

from anabranch.journal import AppendDone, Journal, RecordPlace
from anabranch.journal.format import RECORD_HEADER_BYTES
from anabranch.journal.recovery import Recovered
from anabranch.runtime.disk import DiskFile, WriteDone
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


class _UnsyncedFile:
    """Passes everything on, except the wish for a sync."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        self._file.append(buffers, sync=False, done=done)


@planted("journal_skips_sync", target="anabranch.journal.journal:Journal._use_file")
def journal_skips_sync(self: Journal, segment: int, file: DiskFile) -> None:
    """Records are acknowledged once written, before they are durable."""
    original("journal_skips_sync")(self, segment, _UnsyncedFile(file))


@planted("acknowledged_before_written", target="anabranch.journal.journal:Journal.append")
def acknowledged_before_written(
    self: Journal, parts: Sequence[Buffer], done: AppendDone
) -> RecordPlace:
    """An append is answered in the next turn of the loop, whatever the disk does."""
    self._loop.call_soon(done, None)
    place: RecordPlace = original("acknowledged_before_written")(self, parts, lambda _: None)
    return place


@planted("failed_write_counts_as_done", target="anabranch.journal.journal:Journal._written")
def failed_write_counts_as_done(self: Journal, error: OSError | None) -> None:
    """An error of the disk is not looked at."""
    del error
    original("failed_write_counts_as_done")(self, None)


@planted("damage_is_cut_as_a_tail", target="anabranch.journal.recovery:check_torn")
async def damage_is_cut_as_a_tail(*_: object) -> None:
    """Recovery takes any damage for a torn tail and drops what follows it."""


@planted("unproven_tail_is_cut", target="anabranch.journal.journal:recover")
async def unproven_tail_is_cut(*args: Any, **options: Any) -> Recovered:
    """Recovery drops the last write unless a later one vouches for it."""
    found: Recovered = await original("unproven_tail_is_cut")(*args, **options)
    found.torn_bytes += found.tail_bytes - found.proven_bytes
    found.tail_bytes = found.proven_bytes
    return found


@planted("damaged_record_is_served", target="anabranch.journal.files:record_payload")
def damaged_record_is_served(data: memoryview, _seed: int) -> memoryview:
    """Reading does not look at the checksum."""
    return data[RECORD_HEADER_BYTES:]


@planted("next_segment_fails_later", target="anabranch.journal.journal:Journal._next_is_ready")
def next_segment_fails_later(self: Journal) -> None:
    """A failed sync of the coming segment is not looked at until that segment is needed."""
    self._flush()
    self._progress.wake()
