"""The journal on a real disk: order, group commit, rolling, reading back, failing for good."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from anabranch.errors import AlreadyClosed, Corruption, DiskFull, InputError, NotFound, StoreFailed
from anabranch.journal import Journal, RecordPlace
from anabranch.limits import JOURNAL_IDLE_MARK_S, JOURNAL_RECORD_BYTES_MAX
from anabranch.runtime.network import Buffer
from anabranch.testing.failing_disk import FailingDisk

KIND = b"test"


class Bench:
    """A journal folder that can be opened again and again."""

    def __init__(self, folder: Path) -> None:
        self.disk = FailingDisk()
        self.folder = str(folder / "journal")
        self.replayed: list[tuple[RecordPlace, bytes]] = []
        self.results: list[tuple[int, Exception | None]] = []

    async def open(self, *, segment_bytes: int = 1 << 20, **more: int) -> Journal:
        self.replayed = []

        def replay(place: RecordPlace, payload: memoryview) -> None:
            self.replayed.append((place, bytes(payload)))

        return await Journal.open(
            self.disk,
            self.folder,
            kind=KIND,
            segment_bytes=segment_bytes,
            replay=replay,
            **more,  # type: ignore[arg-type]
        )

    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.replayed]

    def note(self, number: int) -> Callable[[Exception | None], None]:
        return lambda error: self.results.append((number, error))

    async def append(self, journal: Journal, *payloads: bytes) -> list[RecordPlace]:
        """Append in one turn of the loop and wait for the last."""
        last: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: Exception | None) -> None:
            if error is None:
                last.set_result(None)
            else:
                last.set_exception(error)

        places = [journal.append([payload], lambda _: None) for payload in payloads[:-1]]
        places.append(journal.append([payloads[-1]], finish))
        await last
        return places


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_was_appended_is_replayed_in_order_with_its_places(bench: Bench) -> None:
    journal = await bench.open()
    payloads = [b"%d" % number * (number + 1) for number in range(50)]
    places = await bench.append(journal, *payloads)
    await journal.close()
    reopened = await bench.open()
    assert bench.replayed == list(zip(places, payloads, strict=True))
    await reopened.close()


async def test_parts_are_joined_and_views_are_written_as_they_are(bench: Bench) -> None:
    journal = await bench.open()
    whole = bytearray(b"..payload..")
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    place = journal.append([b"head:", memoryview(whole)[2:9], b""], done.set_result)
    assert await done is None
    assert await journal.read_run([place]) == [b"head:payload"]
    await journal.close()


async def test_appends_of_one_turn_share_one_write(bench: Bench) -> None:
    journal = await bench.open()
    before = bench.disk.appends
    await bench.append(journal, *[b"x" * 100] * 500)
    assert bench.disk.appends == before + 1
    await journal.close()


async def test_completions_come_in_order_over_many_groups(bench: Bench) -> None:
    journal = await bench.open()
    for number in range(300):
        journal.append([b"x" * (number + 1)], bench.note(number))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await journal.close()
    assert bench.results == [(number, None) for number in range(300)]


async def test_pending_bytes_rise_and_fall_to_zero(bench: Bench) -> None:
    journal = await bench.open()
    journal.append([b"x" * 1000], lambda _: None)
    assert journal.pressure.pending_bytes >= 1000
    await journal.close()
    assert journal.pressure.pending_bytes == 0


async def test_segments_roll_by_size_and_all_are_replayed(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=2000)
    payloads = [b"%04d" % number * 50 for number in range(100)]
    for start in range(0, 100, 10):
        await bench.append(journal, *payloads[start : start + 10])
    assert len(journal.segments()) > 5
    await journal.close()
    reopened = await bench.open(segment_bytes=2000)
    assert bench.payloads() == payloads
    for place, payload in bench.replayed:
        assert await reopened.read_run([place]) == [payload]
    await reopened.close()


async def test_one_burst_over_many_segments(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=2000)
    payloads = [b"%04d" % number * 50 for number in range(100)]
    places = await bench.append(journal, *payloads)
    assert len({place.segment for place in places}) > 5
    await journal.close()
    await (await bench.open()).close()
    assert bench.payloads() == payloads


async def test_records_larger_than_a_scan_are_replayed(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=64 << 20)
    payloads = [b"s", b"L" * (9 << 20), b"m" * 100_000, b"M" * JOURNAL_RECORD_BYTES_MAX, b"e"]
    await bench.append(journal, *payloads)
    await journal.close()
    reopened = await bench.open(segment_bytes=64 << 20)
    assert bench.payloads() == payloads
    await reopened.close()


@pytest.mark.parametrize("parts", [[], [b""], [b"x" * JOURNAL_RECORD_BYTES_MAX, b"y"]])
async def test_empty_and_oversize_records_are_refused(bench: Bench, parts: list[bytes]) -> None:
    journal = await bench.open()
    with pytest.raises(InputError, match="a record has 1 to"):
        journal.append(parts, lambda _: None)
    await journal.close()


async def test_roll_begins_a_segment_once(bench: Bench) -> None:
    journal = await bench.open()
    await bench.append(journal, b"old")
    number = journal.roll()
    assert journal.roll() == number
    (place,) = await bench.append(journal, b"new")
    assert place.segment == number
    await journal.close()
    reopened = await bench.open(from_segment=number)
    assert bench.payloads() == [b"new"]
    await reopened.close()


async def test_segments_dropped_after_a_roll_stay_dropped(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=500)
    for number in range(10):
        await bench.append(journal, b"%d" % number * 100)
    first = journal.roll()
    await journal.drop_segments_below(first)
    assert journal.segments() == [first]
    await journal.close()
    reopened = await bench.open(from_segment=first)
    assert bench.replayed == []
    (place,) = await bench.append(reopened, b"next")
    assert place.segment == first
    await reopened.close()


async def test_two_callers_may_drop_the_same_segments(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=500)
    for number in range(10):
        await bench.append(journal, b"%d" % number * 100)
    first = journal.roll()
    await asyncio.gather(journal.drop_segments_below(first), journal.drop_segments_below(first))
    assert journal.segments() == [first]
    await journal.close()


async def test_a_segment_rolled_to_but_never_made_is_begun_by_the_next_life(bench: Bench) -> None:
    journal = await bench.open()
    await bench.append(journal, b"covered by a snapshot")
    await journal.close()
    reopened = await bench.open(from_segment=2)
    (place,) = await bench.append(reopened, b"after")
    assert place.segment == 2
    await reopened.close()
    await (await bench.open(from_segment=2)).close()
    assert bench.payloads() == [b"after"]


async def test_a_removed_segment_leaves_the_others(bench: Bench) -> None:
    journal = await bench.open(segment_bytes=300)
    places = []
    for number in range(6):
        places += await bench.append(journal, b"%d" % number * 300)
    await journal.remove_segment(places[2].segment)
    with pytest.raises(NotFound, match=r"000003\.journal"):
        await journal.read_run([places[2]])
    await journal.close()
    with pytest.raises(Corruption, match="missing"):
        await bench.open(segment_bytes=300)
    reopened = await bench.open(segment_bytes=300, sparse=True)
    assert [payload[:1] for payload in bench.payloads()] == [b"0", b"1", b"3", b"4", b"5"]
    await reopened.close()


async def test_a_run_is_read_at_once(bench: Bench) -> None:
    journal = await bench.open()
    payloads = [b"%d" % number * 10 for number in range(20)]
    places = await bench.append(journal, *payloads)
    run = await journal.read_run(places[5:15:2])
    assert [bytes(view) for view in run] == payloads[5:15:2]
    await journal.close()


async def test_more_segments_than_open_files(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.journal.files.JOURNAL_OPEN_FILES_MAX", 2)
    journal = await bench.open(segment_bytes=200)
    places = []
    for number in range(12):
        places += await bench.append(journal, b"%d" % number * 200)
    reads = await asyncio.gather(*[journal.read_run([place]) for place in places * 3])
    assert reads == [[b"%d" % number * 200] for number in range(12)] * 3
    await journal.close()


async def test_append_after_close_is_refused(bench: Bench) -> None:
    journal = await bench.open()
    await journal.close()
    await journal.close()
    with pytest.raises(AlreadyClosed):
        journal.append([b"late"], lambda _: None)


async def test_one_raising_callback_does_not_swallow_the_others(bench: Bench) -> None:
    journal = await bench.open()
    seen: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))

    def mistake(_: Exception | None) -> None:
        raise ZeroDivisionError

    journal.append([b"1"], bench.note(1))
    journal.append([b"2"], mistake)
    journal.append([b"3"], bench.note(3))
    await journal.close()
    assert bench.results == [(1, None), (3, None)]
    assert [type(error) for error in seen] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("code", "first"), [(errno.EIO, StoreFailed), (errno.ENOSPC, DiskFull)], ids=["eio", "full"]
)
async def test_a_failed_write_ends_the_journal(
    bench: Bench, code: int, first: type[Exception]
) -> None:
    journal = await bench.open()
    await bench.append(journal, b"acknowledged")

    def verdict(_path: str, buffers: Sequence[Buffer]) -> OSError | None:
        return OSError(code, "made to fail") if b"doomed" in buffers else None

    bench.disk.verdict = verdict
    journal.append([b"doomed"], bench.note(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    journal.append([b"behind it"], bench.note(2))
    both_told = asyncio.Event()
    journal.append([b"last of them"], lambda _: both_told.set())
    await both_told.wait()
    journal.append([b"later"], bench.note(3))
    await journal.close()
    assert [number for number, _ in bench.results] == [1, 2, 3]
    assert [type(error) for _, error in bench.results] == [first, StoreFailed, StoreFailed]
    assert isinstance(journal.failure, StoreFailed)
    bench.disk.verdict = lambda _path, _buffers: None
    await (await bench.open()).close()
    assert bench.payloads() == [b"acknowledged"]


async def test_failing_to_make_the_next_segment_fails_only_what_needs_it(bench: Bench) -> None:
    def verdict(path: str, _buffers: Sequence[Buffer]) -> OSError | None:
        return OSError(errno.ENOSPC, "made to fail") if "02.journal" in path else None

    journal = await bench.open(segment_bytes=400)
    bench.disk.verdict = verdict
    await bench.append(journal, b"x" * 300)
    await asyncio.sleep(0.02)
    await bench.append(journal, b"y" * 100)
    with pytest.raises(DiskFull):
        await bench.append(journal, b"z" * 100)
    await journal.close()


async def test_a_journal_that_fails_while_its_mark_is_due_can_be_closed(bench: Bench) -> None:
    journal = await bench.open()
    await bench.append(journal, b"durable")  # the mark that says so is written a little later
    bench.disk.verdict = lambda _path, _buffers: OSError(5, "disk on fire")
    with pytest.raises(StoreFailed):
        await bench.append(journal, b"lost")
    await asyncio.sleep(2 * JOURNAL_IDLE_MARK_S)
    await asyncio.wait_for(journal.close(), 5)


async def test_what_was_written_is_told_before_what_fails_behind_it(bench: Bench) -> None:
    def verdict(path: str, _buffers: Sequence[Buffer]) -> OSError | None:
        return OSError(errno.ENOSPC, "made to fail") if "02.journal" in path else None

    journal = await bench.open(segment_bytes=500)
    bench.disk.verdict = verdict
    await bench.append(journal, b"x" * 300)
    await asyncio.sleep(0.05)  # the next segment cannot be made, which is known by now
    journal.append([b"y" * 200], bench.note(1))
    journal.append([b"needs the next segment"], bench.note(2))
    journal.append([b"so does this"], bench.note(3))
    await journal.close()
    assert [(number, type(error)) for number, error in bench.results] == [
        (1, type(None)),
        (2, DiskFull),
        (3, DiskFull),
    ]


async def test_a_large_group_waits_at_the_disk_behind_the_one_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.journal.JOURNAL_WRITE_AHEAD_BYTES", 1000)
    journal = await bench.open()
    before = bench.disk.appends
    for number in range(10):
        journal.append([b"%d" % number * 600], bench.note(number))
    assert bench.disk.appends == before + 2, "two are handed over, the rest gathers"
    await journal.close()
    assert bench.results == [(number, None) for number in range(10)]
    await (await bench.open()).close()
    assert bench.payloads() == [b"%d" % number * 600 for number in range(10)]


async def test_what_waits_behind_a_failed_write_fails_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.journal.JOURNAL_WRITE_AHEAD_BYTES", 1000)
    journal = await bench.open()
    await bench.append(journal, b"safe")
    bench.disk.verdict = lambda _path, _buffers: OSError(errno.EIO, "made to fail")
    for number in range(10):
        journal.append([b"%d" % number * 600], bench.note(number))
    await journal.close()
    assert [number for number, _ in bench.results] == list(range(10))
    assert {type(error) for _, error in bench.results} == {StoreFailed}
    bench.disk.verdict = lambda _path, _buffers: None
    await (await bench.open()).close()
    assert bench.payloads() == [b"safe"]
