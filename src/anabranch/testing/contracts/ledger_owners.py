"""Who may write a ledger, and what is left of it when its writer or its store ends.

Subclasses give the fixture `bench` as for `contracts.ledgers`.
"""

import asyncio
import contextlib
from typing import ClassVar

import pytest

from anabranch.errors import AlreadyClosed, ConflictError, Fenced, NotFound
from anabranch.ledgers.store import LedgerState
from anabranch.testing.contracts.ledgers import LedgerBench, append, ids_of, payloads_of


class Closing:
    """The writer ends its ledger."""

    async def test_close_waits_for_appends_in_flight(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        completed: list[int] = []
        for _ in range(30):
            writer.append(b"x", lambda entry_id, _: completed.append(entry_id))
        assert await writer.close() == 29
        assert completed == list(range(30))

    async def test_append_after_close_is_refused(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a")
        await writer.close()
        with pytest.raises(AlreadyClosed):
            writer.append(b"b", lambda *_: None)
        assert await payloads_of(await bench.store.open(1)) == [b"a"]

    async def test_append_while_closing_is_refused(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        writer.append(b"a", lambda *_: None)
        closing = asyncio.ensure_future(writer.close())
        await asyncio.sleep(0)
        with pytest.raises(AlreadyClosed):
            writer.append(b"b", lambda *_: None)
        assert await closing == 0

    async def test_close_again_gives_the_same_answer(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a", b"b")
        assert [await writer.close(), await writer.close()] == [1, 1]

    async def test_opening_a_closed_ledger_changes_nothing(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a")
        await writer.close()
        before = await bench.store.describe(1)
        first, second = await bench.store.open(1), await bench.store.open(1)
        assert await payloads_of(first) == await payloads_of(second) == [b"a"]
        assert await bench.store.describe(1) == before
        assert await payloads_of(writer) == [b"a"]


class Fencing:
    """Somebody else opens the ledger."""

    async def test_an_opener_fences_the_writer_and_closes(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a", b"b")
        reader = await bench.store.open(1)
        with pytest.raises(Fenced):
            writer.append(b"c", lambda *_: None)
        with pytest.raises(Fenced):
            await writer.close()
        assert await payloads_of(reader) == [b"a", b"b"]
        description = await bench.store.describe(1)
        assert description.state is LedgerState.CLOSED
        assert (description.last_entry_id, description.length_bytes) == (1, 2)
        assert description.writer_epoch > 1

    async def test_an_append_during_the_opening_is_not_acknowledged_and_lost(
        self, bench: LedgerBench
    ) -> None:
        writer = await bench.store.create(1)
        opening = asyncio.ensure_future(bench.store.open(1))
        await asyncio.sleep(0)
        results: list[Exception | None] = []
        with contextlib.suppress(Fenced):
            writer.append(b"late", lambda _, error: results.append(error))
        reader = await opening
        await asyncio.sleep(0.01)
        assert reader.last_entry_id >= results.count(None) - 1

    async def test_appends_in_flight_are_in_the_ledger_or_fail(self, bench: LedgerBench) -> None:
        for ledger_id in range(20):
            writer = await bench.store.create(ledger_id)
            acknowledged: list[int] = []
            failed: list[int] = []

            def done(
                entry_id: int,
                error: Exception | None,
                acknowledged: list[int] = acknowledged,
                failed: list[int] = failed,
            ) -> None:
                (acknowledged if error is None else failed).append(entry_id)

            for number in range(ledger_id):
                writer.append(b"%d" % number, done)
            reader = await bench.store.open(ledger_id)
            found = await payloads_of(reader)
            assert found[: len(acknowledged)] == [b"%d" % number for number in acknowledged]
            await asyncio.sleep(0.01)
            assert len(acknowledged) + len(failed) == ledger_id, "an append was never answered"
            assert len(acknowledged) <= len(found), "acknowledged and lost"
            assert reader.last_entry_id == len(found) - 1, "the ledger grew after it was closed"

    async def test_two_openers_see_the_same_ledger(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        for _ in range(10):
            writer.append(b"x", lambda *_: None)
        first, second = await asyncio.gather(bench.store.open(1), bench.store.open(1))
        assert first.last_entry_id == second.last_entry_id
        assert await payloads_of(first) == await payloads_of(second)

    async def test_deleting_an_open_ledger_fences_its_writer(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a")
        await bench.store.delete(1)
        with pytest.raises(Fenced):
            writer.append(b"b", lambda *_: None)
        with pytest.raises(Fenced):
            await writer.close()

    async def test_describing_and_listing_fence_nobody(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await bench.store.describe(1)
        assert await ids_of(bench.store) == [1]
        assert await append(writer, b"still mine") == [0]


class Surviving:
    """Another life of the store's process."""

    remembers_deleted: ClassVar[bool] = True
    """See `LedgerStore.create`."""

    async def test_everything_is_there_after_a_restart(self, bench: LedgerBench) -> None:
        written = {}
        for ledger_id in range(6):
            writer = await bench.store.create(ledger_id, custom_metadata={"n": b"%d" % ledger_id})
            written[ledger_id] = [b"%d" % number * 10 for number in range(ledger_id * 7)]
            if written[ledger_id]:
                await append(writer, *written[ledger_id])
            await writer.close()
        await bench.store.delete(3)
        del written[3]
        before = [await bench.store.describe(ledger_id) for ledger_id in written]
        store = await bench.restart()
        assert await ids_of(store) == list(written)
        assert [await store.describe(ledger_id) for ledger_id in written] == before
        for ledger_id, payloads in written.items():
            assert await payloads_of(await store.open(ledger_id)) == payloads
        for used in (3, 5) if self.remembers_deleted else (5,):
            with pytest.raises(ConflictError):
                await store.create(used)

    async def test_an_open_ledger_is_recovered_after_a_crash(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1, custom_metadata={"k": b"v"})
        await append(writer, b"a", b"b", b"c")
        store = await bench.crash()
        assert (await store.describe(1)).state is LedgerState.OPEN
        reader = await store.open(1)
        assert await payloads_of(reader) == [b"a", b"b", b"c"]
        description = await store.describe(1)
        assert description.state is LedgerState.CLOSED
        assert description.custom_metadata == {"k": b"v"}

    async def test_a_fence_survives_a_crash(self, bench: LedgerBench) -> None:
        writer = await bench.store.create(1)
        await append(writer, b"a")
        await bench.store.open(1)
        fenced = await bench.store.describe(1)
        store = await bench.crash()
        assert await store.describe(1) == fenced
        assert await payloads_of(await store.open(1)) == [b"a"]

    async def test_a_deletion_survives_a_crash(self, bench: LedgerBench) -> None:
        for ledger_id in (1, 2):
            await append(await bench.store.create(ledger_id), b"a")
        await bench.store.delete(1)
        store = await bench.crash()
        assert await ids_of(store) == [2]
        with pytest.raises(NotFound):
            await store.open(1)
        if self.remembers_deleted:
            with pytest.raises(ConflictError):
                await store.create(1)

    async def test_an_empty_open_ledger_survives_a_crash(self, bench: LedgerBench) -> None:
        await bench.store.create(1)
        store = await bench.crash()
        assert (await store.open(1)).last_entry_id == -1

    async def test_many_lives(self, bench: LedgerBench) -> None:
        for life in range(6):
            writer = await bench.store.create(life)
            await append(writer, *(b"%d" % number for number in range(life + 1)))
            store = await (bench.crash() if life % 2 else bench.restart())
            for ledger_id in range(life + 1):
                reader = await store.open(ledger_id)
                expected = [b"%d" % number for number in range(ledger_id + 1)]
                assert await payloads_of(reader) == expected
