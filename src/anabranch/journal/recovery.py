"""Reading a journal back after a stop of any kind: what is intact, where it ends, what is wrong.

Streams through the segments in pieces, so that memory does not grow with the journal. Nothing on
disk is changed here; `Recovered` says what has to be cut or removed.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.errors import Corruption, FormatError
from anabranch.journal.files import disk_errors
from anabranch.journal.format import (
    HEADER_BYTES,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    REWRITTEN_VERSION,
    RecordPlace,
    check_header,
    find_marks,
    is_rewriting_name,
    is_torn_header,
    parse_items,
    seed_of,
    segment_name,
    segment_number,
)
from anabranch.limits import (
    JOURNAL_GROUP_BYTES_MAX,
    JOURNAL_SCAN_BYTES,
)
from anabranch.runtime.disk import Disk, DiskFile

Replay = Callable[[RecordPlace, memoryview], None]
Known = Callable[[int], Awaitable[bool]]
"""Asked for a sealed segment: whether what is in it is known, so that it need not be read."""

_TORN_BYTES_MAX = JOURNAL_GROUP_BYTES_MAX + RECORD_HEADER_BYTES + 2 * MARK_BYTES
"""A crash can tear the group under way and an unsynced mark before it."""


@dataclass(slots=True)
class Recovered:
    """What recovery found, and what is to be done before appending."""

    tail: int
    """The segment to append to; it may have to be created."""
    tail_bytes: int
    """Where its intact part ends; 0 if the file is to be created."""
    torn_bytes: int = 0
    """How much of the tail is to be cut."""
    proven_bytes: int = 0
    """How much of the tail is known to have been durable before."""
    sealed: list[int] = field(default_factory=list)
    discard: list[int] = field(default_factory=list)
    """Files after the tail that were begun and never used."""


class ScannedSegment(NamedTuple):
    """What a scan of one segment found."""

    number: int
    path: str
    size: int
    end: int
    """After the last intact item; 0 if the header was torn."""
    damage: str
    synced: int
    """How much its intact marks vouch for; -1 if it has none and so was never used."""
    previous: int | None
    rewritten: bool = False


async def list_segments(disk: Disk, folder: str) -> list[int]:
    """The numbers of all segments in a folder, ascending.

    Raises:
        FormatError: if something else is in there.
    """
    numbers = []
    for name in await disk.list(folder):
        number = segment_number(name)
        if is_rewriting_name(name):
            continue
        if number is None:
            raise FormatError(
                f"{folder}/{name} is not a journal segment: is this the right folder?"
            )
        numbers.append(number)
    return sorted(numbers)


async def recover(
    disk: Disk,
    folder: str,
    *,
    kind: bytes,
    replay: Replay,
    from_segment: int,
    sparse: bool,
    known: Known | None = None,
) -> Recovered:
    """Replay every intact record from `from_segment` on, but for segments that are known.

    Raises:
        Corruption: if damage cannot be a torn tail, or a segment is missing.
        FormatError: if a file is foreign.
    """
    numbers = await list_segments(disk, folder)
    if not sparse:
        _check_no_gap(folder, numbers, from_segment)
    below = [number for number in numbers if number < from_segment]
    wanted = numbers[len(below) :]
    tail: ScannedSegment | None = None
    before: ScannedSegment | None = None
    last_sealed = 0
    for index, number in enumerate(wanted):
        if known is not None and number != wanted[-1] and await known(number):
            last_sealed, before = number, None
            continue
        segment = await _scan(disk, folder, kind, number, replay)
        if segment.rewritten:
            _check_whole(segment)
            last_sealed = number
        elif segment.damage:
            await check_torn(disk, folder, segment, wanted[index + 1 :])
        if before is not None and before.number == number - 1 and segment.synced >= 0:
            _check_end(before, segment)
        if segment.synced >= 0 and not segment.rewritten:
            tail = segment
        if segment.damage:
            break
        before = segment
    if tail is None or tail.number < last_sealed:
        unused = [number for number in wanted if number > last_sealed]
        sealed = below + [number for number in wanted if number <= last_sealed]
        first = max(1, from_segment, last_sealed + 1, *unused[:1])
        return Recovered(tail=first, tail_bytes=0, sealed=sealed, discard=unused)
    return Recovered(
        tail=tail.number,
        tail_bytes=tail.end,
        torn_bytes=tail.size - tail.end,
        proven_bytes=tail.synced,
        sealed=below + [number for number in wanted if number < tail.number],
        discard=[number for number in wanted if number > tail.number],
    )


def _check_no_gap(folder: str, numbers: Sequence[int], from_segment: int) -> None:
    wanted = [number for number in numbers if number >= from_segment]
    expected = from_segment or (wanted[0] if wanted else 0)
    for number in wanted:
        if number != expected:
            break
        expected += 1
    else:
        # A segment that was rolled to and never written may not exist yet.
        begun = bool(wanted) or from_segment == 0 or from_segment - 1 in numbers
        if begun:
            return
    raise Corruption(f"{folder}/{segment_name(expected)}", 0, "the segment is missing")


async def _scan(
    disk: Disk, folder: str, kind: bytes, number: int, replay: Replay
) -> ScannedSegment:
    path = f"{folder}/{segment_name(number)}"
    with disk_errors(f"recovering {path}"):
        file = await disk.open(path, read_only=True)
        try:
            return await _scan_file(file, kind, number, replay)
        finally:
            await file.close()


async def _scan_file(file: DiskFile, kind: bytes, number: int, replay: Replay) -> ScannedSegment:
    size = await file.size()
    header = await file.read_at(0, HEADER_BYTES)
    if size <= HEADER_BYTES and is_torn_header(header, kind, number):
        return ScannedSegment(number, file.path, size, 0, "the segment's header is torn", -1, None)
    version = check_header(header, file.path, kind, number)
    offset = HEADER_BYTES
    wanted_bytes = 0
    synced = -1
    previous: int | None = None
    damage = ""
    while offset < size and not damage:
        data = await file.read_at(offset, max(JOURNAL_SCAN_BYTES, wanted_bytes))
        parsed = parse_items(memoryview(data), number, offset, replay)
        if parsed.previous is not None:
            previous = parsed.previous
        synced = max(synced, parsed.synced)
        offset += parsed.consumed
        wanted_bytes = parsed.wanted_bytes
        damage = parsed.damage
        if offset < size < offset + wanted_bytes:
            damage = f"{size - offset} bytes are left of an item of at least {wanted_bytes}"
    rewritten = version == REWRITTEN_VERSION
    return ScannedSegment(number, file.path, size, offset, damage, synced, previous, rewritten)


def _check_whole(segment: ScannedSegment) -> None:
    """A rewritten segment was durable before it got its name: whatever is wrong is damage."""
    if segment.damage:
        raise Corruption(segment.path, segment.end, segment.damage)
    if segment.synced != segment.end - MARK_BYTES:
        raise Corruption(segment.path, segment.end, "the end of the rewritten segment is missing")


async def check_torn(
    disk: Disk, folder: str, damaged: ScannedSegment, later: Sequence[int]
) -> None:
    """Refuse damage that a crash during the last write cannot explain."""
    size = damaged.size - damaged.end
    if size > _TORN_BYTES_MAX:
        detail = f"{damaged.damage}; {size} bytes follow, more than a crash can tear"
        raise Corruption(damaged.path, damaged.end, detail)
    for number in (damaged.number, *later):
        path = f"{folder}/{segment_name(number)}"
        voucher = await _find_voucher(disk, path, number, damaged)
        if voucher is not None:
            detail = f"{damaged.damage}, although {path} says at byte {voucher} that it was synced"
            raise Corruption(damaged.path, damaged.end, detail)


async def _find_voucher(disk: Disk, path: str, number: int, damaged: ScannedSegment) -> int | None:
    """Where in a segment an intact mark says that the damaged bytes were durable."""
    seed = seed_of(number)
    offset = damaged.end if number == damaged.number else HEADER_BYTES
    with disk_errors(f"recovering {path}"):
        file = await disk.open(path, read_only=True)
        try:
            size = await file.size()
            while offset < size:
                data = await file.read_at(offset, JOURNAL_SCAN_BYTES)
                for at, synced in find_marks(data, seed, offset):
                    if number > damaged.number or synced > damaged.end:
                        return at
                # A mark may lie across two pieces.
                offset += max(len(data) - MARK_BYTES + 1, 1)
            return None
        finally:
            await file.close()


def _check_end(before: ScannedSegment, segment: ScannedSegment) -> None:
    if before.rewritten or segment.rewritten:
        return  # they are not as long as they were when the next was begun
    if segment.previous not in (0, before.end):
        detail = (
            f"the segment ends here; the next one was begun when it had {segment.previous} bytes"
        )
        raise Corruption(before.path, before.end, detail)
