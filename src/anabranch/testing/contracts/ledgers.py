"""What every ledger store must do: numbering, reading, closing, and bad input.

Subclasses give the fixture `bench`, a `LedgerBench` on a store without ledgers. `ledger_owners` has
the cases about who may write and what survives.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Protocol

import pytest

from anabranch.errors import AlreadyClosed, ConflictError, InputError, NotFound
from anabranch.ledgers.store import (
    Entry,
    LedgerDescription,
    LedgerReader,
    LedgerState,
    LedgerStore,
    LedgerWriter,
)
from anabranch.limits import LEDGER_ID_MAX, MESSAGE_BYTES_MAX
from anabranch.runtime.network import Buffer

MANY = 1 << 40
"""More bytes than any test reads."""


class LedgerBench(Protocol):
    """A store and the ways its process may end."""

    @property
    def store(self) -> LedgerStore:
        """The store of the present life."""
        ...

    async def restart(self) -> LedgerStore:
        """Stop cleanly and begin another life."""
        ...

    async def crash(self) -> LedgerStore:
        """Vanish without stopping and begin another life."""
        ...


async def append(writer: LedgerWriter, *payloads: Buffer) -> list[int]:
    """Append all at once and wait until all are durable."""
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ids: list[int] = []

    def done(entry_id: int, error: Exception | None) -> None:
        if error is not None and not finished.done():
            finished.set_exception(error)
        elif error is None and entry_id == ids[-1]:
            finished.set_result(None)

    ids.extend(writer.append(payload, done) for payload in payloads)
    await finished
    return ids


async def payloads_of(reader: LedgerReader) -> list[bytes]:
    """Everything in a ledger."""
    found: list[Entry] = []
    while len(found) <= reader.last_entry_id:
        found += await reader.read(len(found), reader.last_entry_id, max_bytes=MANY)
    assert [entry.entry_id for entry in found] == list(range(reader.last_entry_id + 1))
    assert {entry.ledger_id for entry in found} <= {reader.ledger_id}
    return [bytes(entry.payload) for entry in found]


async def ids_of(store: LedgerStore) -> list[int]:
    """The ids the store lists."""
    return [ledger_id async for ledger_id in store.list()]


class Appending:
    """Numbers, order, payloads of every size."""

    async def test_entries_are_numbered_from_zero_without_gaps(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(7)
        assert writer.last_entry_id == -1
        assert await append(writer, b"a", b"b") == [0, 1]
        assert await append(writer, b"c") == [2]
        assert (writer.ledger_id, writer.last_entry_id) == (7, 2)
        assert await payloads_of(writer) == [b"a", b"b", b"c"]

    async def test_pipelined_appends_complete_in_order(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        completed: list[tuple[int, Exception | None]] = []
        for number in range(200):
            writer.append(b"%d" % number, lambda *result: completed.append(result))
            if number % 17 == 0:
                await asyncio.sleep(0)
        await writer.close()
        assert completed == [(number, None) for number in range(200)]

    async def test_completion_never_comes_within_the_call(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        completed: list[int] = []
        writer.append(b"a", lambda entry_id, _: completed.append(entry_id))
        assert completed == []
        await writer.close()
        assert completed == [0]

    async def test_an_append_from_within_a_completion(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        second = asyncio.Event()

        def go_on(_entry_id: int, _error: Exception | None) -> None:
            writer.append(b"b", lambda *_: second.set())

        writer.append(b"a", go_on)
        await second.wait()
        assert await payloads_of(writer) == [b"a", b"b"]

    async def test_what_is_not_durable_cannot_be_read(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        writer.append(b"a", lambda *_: None)
        assert writer.last_entry_id == -1
        with pytest.raises(NotFound):
            await writer.read(0, 0, max_bytes=MANY)

    async def test_empty_payload(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"", b"x", b"")
        assert await payloads_of(writer) == [b"", b"x", b""]

    async def test_largest_message(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        large = bytes(range(256)) * (MESSAGE_BYTES_MAX // 256)
        await append(writer, b"before", large, b"after")
        assert await payloads_of(writer) == [b"before", large, b"after"]

    async def test_an_oversize_payload_is_refused_and_changes_nothing(
        self, bench: LedgerBench
    ) -> None:
        writer = await bench.store.create(1)
        with pytest.raises(InputError):
            writer.append(bytes(17 << 20), lambda *_: None)
        assert await append(writer, b"fits") == [0]

    async def test_views_of_a_larger_buffer(self, bench: LedgerBench) -> None:
        frame = memoryview(b"....first|second....")
        writer = await bench.store.create(1)
        await append(writer, frame[4:9], bytearray(b"middle"), frame[10:16])
        assert await payloads_of(writer) == [b"first", b"middle", b"second"]

    async def test_ledgers_written_side_by_side_stay_apart(self, bench: LedgerBench) -> None:
        writers = [await bench.store.create(number) for number in range(5)]
        finished = []
        for number in range(40):
            for writer in writers:
                payload = b"%d-%d" % (writer.ledger_id, number)
                writer.append(payload, lambda *result: finished.append(result))
        for writer in writers:
            assert await writer.close() == 39
        assert len(finished) == 200
        for writer in writers:
            expected = [b"%d-%d" % (writer.ledger_id, number) for number in range(40)]
            assert await payloads_of(writer) == expected

    async def test_pending_bytes_tell_what_is_not_durable(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        assert bench.store.pressure.pending_bytes == 0
        writer.append(bytes(5000), lambda *_: None)
        assert bench.store.pressure.pending_bytes >= 5000
        await writer.close()
        assert bench.store.pressure.pending_bytes == 0


class Reading:
    """Ranges and their limits."""

    async def ledger(self, bench: LedgerBench, payloads: Sequence[bytes]) -> LedgerReader:
        writer = await bench.store.create(3)
        await append(writer, *payloads)
        await writer.close()
        return await bench.store.open(3)

    async def test_a_range_is_inclusive(self, bench: LedgerBench) -> None:
        reader = await self.ledger(bench, [b"%d" % number for number in range(10)])
        entries = await reader.read(3, 5, max_bytes=MANY)
        assert [(e.entry_id, bytes(e.payload)) for e in entries] == [
            (3, b"3"),
            (4, b"4"),
            (5, b"5"),
        ]
        assert {entry.ledger_id for entry in entries} == {3}

    async def test_a_range_beyond_the_end_is_cut(self, bench: LedgerBench) -> None:
        reader = await self.ledger(bench, [b"a", b"b", b"c"])
        assert len(await reader.read(1, 1000, max_bytes=MANY)) == 2

    @pytest.mark.parametrize(
        ("max_bytes", "expected"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)]
    )
    async def test_max_bytes_counts_payloads_and_one_entry_always_fits(
        self, bench: LedgerBench, max_bytes: int, expected: int
    ) -> None:
        reader = await self.ledger(bench, [bytes(10)] * 3)
        assert len(await reader.read(0, 2, max_bytes=max_bytes)) == expected

    async def test_first_above_the_end_is_not_found(self, bench: LedgerBench) -> None:
        reader = await self.ledger(bench, [b"a", b"b"])
        with pytest.raises(NotFound, match="3"):
            await reader.read(2, 5, max_bytes=MANY)

    @pytest.mark.parametrize(("first", "last"), [(-1, 0), (1, 0), (-5, -1)])
    async def test_what_is_no_range_is_refused(
        self, bench: LedgerBench, first: int, last: int
    ) -> None:
        reader = await self.ledger(bench, [b"a", b"b"])
        with pytest.raises(InputError):
            await reader.read(first, last, max_bytes=MANY)

    async def test_an_empty_ledger_has_nothing_to_read(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(3)
        assert await writer.close() == -1
        reader = await bench.store.open(3)
        assert reader.last_entry_id == -1
        with pytest.raises(NotFound):
            await reader.read(0, 0, max_bytes=MANY)

    async def test_many_readers_at_once(self, bench: LedgerBench) -> None:
        reader = await self.ledger(bench, [b"%d" % number for number in range(100)])
        reads = [reader.read(number, number + 9, max_bytes=MANY) for number in range(90)]
        for first, entries in enumerate(await asyncio.gather(*reads)):
            assert [bytes(e.payload) for e in entries] == [b"%d" % (first + n) for n in range(10)]

    async def test_a_writer_reads_while_it_writes(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        for number in range(20):
            await append(writer, b"%d" % number)
            (entry,) = await writer.read(number, number, max_bytes=MANY)
            assert bytes(entry.payload) == b"%d" % number


class Living:
    """Creating, describing, listing, deleting."""

    remembers_deleted: ClassVar[bool] = True
    """See `LedgerStore.create`."""

    async def test_an_id_is_used_once(self, bench: LedgerBench) -> None:
        await (await bench.store.create(5)).close()
        with pytest.raises(ConflictError, match="5"):
            await bench.store.create(5)
        await bench.store.delete(5)
        if self.remembers_deleted:
            with pytest.raises(ConflictError, match="5"):
                await bench.store.create(5)

    async def test_ids_come_in_any_order(self, bench: LedgerBench) -> None:
        for ledger_id in (9, 2, 5, 0):
            await bench.store.create(ledger_id)
        await bench.store.delete(9)
        await bench.store.create(7)
        assert await ids_of(bench.store) == [0, 2, 5, 7]

    async def test_creating_one_id_twice_at_once(self, bench: LedgerBench) -> None:
        both = [bench.store.create(5), bench.store.create(5)]
        results = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(isinstance(result, ConflictError) for result in results) == [False, True]

    @pytest.mark.parametrize("ledger_id", [-1, LEDGER_ID_MAX + 1])
    async def test_impossible_ids_are_refused(self, bench: LedgerBench, ledger_id: int) -> None:
        with pytest.raises(InputError):
            await bench.store.create(ledger_id)
        assert await ids_of(bench.store) == []

    async def test_the_largest_id(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(LEDGER_ID_MAX)
        await append(writer, b"x")
        assert await ids_of(bench.store) == [LEDGER_ID_MAX]

    async def test_describe_follows_the_ledger(self, bench: LedgerBench) -> None:
        metadata = {"application": b"pulsar", "empty": b"", "bytes": bytes(range(256))}
        writer = await bench.store.create(4, custom_metadata=metadata)
        opened = LedgerDescription(4, LedgerState.OPEN, 1, -1, 0, metadata)
        assert await bench.store.describe(4) == opened
        await append(writer, b"12345", b"678")
        written = LedgerDescription(4, LedgerState.OPEN, 1, 1, 8, metadata)
        assert await bench.store.describe(4) == written
        await writer.close()
        closed = LedgerDescription(4, LedgerState.CLOSED, 1, 1, 8, metadata)
        assert await bench.store.describe(4) == closed

    async def test_metadata_is_taken_when_it_is_given(self, bench: LedgerBench) -> None:
        metadata = {"k": b"v"}
        await bench.store.create(1, custom_metadata=metadata)
        metadata["k"] = b"changed"
        assert (await bench.store.describe(1)).custom_metadata == {"k": b"v"}

    async def test_unknown_ids_are_not_found(self, bench: LedgerBench) -> None:
        await bench.store.create(1)
        for request in (bench.store.open, bench.store.delete, bench.store.describe):
            with pytest.raises(NotFound, match="77"):
                await request(77)

    async def test_a_deleted_ledger_is_gone(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a")
        await writer.close()
        reader = await bench.store.open(1)
        await bench.store.delete(1)
        assert await ids_of(bench.store) == []
        with pytest.raises(NotFound):
            await reader.read(0, 0, max_bytes=MANY)
        for request in (bench.store.open, bench.store.delete, bench.store.describe):
            with pytest.raises(NotFound):
                await request(1)

    async def test_a_closed_store_takes_nothing(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await bench.store.close()
        with pytest.raises(AlreadyClosed):
            writer.append(b"late", lambda *_: None)
        with pytest.raises(AlreadyClosed):
            await bench.store.create(2)
