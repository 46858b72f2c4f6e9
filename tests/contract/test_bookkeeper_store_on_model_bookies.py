"""The ledger store's contract on BookKeeper's protocol, with model bookies in this process."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.errors import AlreadyClosed, FormatError, InputError, NotFound
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.ledger_registry import Found, LedgerRegistry
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerQuorums, LedgerStore
from anabranch.testing.bookies.loopback_cluster import LoopbackCluster
from anabranch.testing.contracts.ledger_owners import Closing, Fencing, Surviving
from anabranch.testing.contracts.ledgers import Appending, LedgerBench, Living, Reading


class ModelBench:
    """Bookies that outlive the stores on them; a crashed store is left where it was."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self.cluster = LoopbackCluster()
        self.settings = settings
        self.lives: list[BookKeeperLedgerStore] = []

    @property
    def store(self) -> LedgerStore:
        return self.lives[-1]

    async def begin(self) -> LedgerStore:
        if not self.lives:
            await self.cluster.more_bookies(3)
        self.lives.append(await self.cluster.store(self.settings))
        return self.store

    async def restart(self) -> LedgerStore:
        await self.lives[-1].close()
        return await self.begin()

    async def crash(self) -> LedgerStore:
        return await self.begin()

    async def end(self) -> None:
        await self.cluster.end()


class OnModelBookies:
    @pytest.fixture(params=[(3, 3, 2), (3, 2, 2)], ids=["3-3-2", "3-2-2"])
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[LedgerBench]:
        ensemble, write, ack = request.param
        bench = ModelBench(
            BookKeeperSettings(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
        )
        await bench.begin()
        yield bench
        await bench.end()


class TestAppending(OnModelBookies, Appending):
    pass


class TestReading(OnModelBookies, Reading):
    pass


class TestLiving(OnModelBookies, Living):
    remembers_deleted = False


class TestClosing(OnModelBookies, Closing):
    pass


class TestFencing(OnModelBookies, Fencing):
    pass


class TestSurviving(OnModelBookies, Surviving):
    remembers_deleted = False


async def test_a_ledger_has_the_quorums_it_was_asked_for() -> None:
    bench = ModelBench(BookKeeperSettings(ensemble_size=3, write_quorum=3, ack_quorum=2))
    await bench.begin()
    try:
        store = bench.lives[-1]
        own = (await store.create(1)).view.quorums
        asked = (await store.create(2, quorums=LedgerQuorums(2, 2, 1))).view.quorums
        assert (own.ensemble, own.write, own.ack) == (3, 3, 2)
        assert (asked.ensemble, asked.write, asked.ack) == (2, 2, 1)
        with pytest.raises(InputError, match="impossible quorums"):
            await store.create(3, quorums=LedgerQuorums(2, 3, 1))
        with pytest.raises(NotFound):
            await store.describe(3)
    finally:
        await bench.end()


async def test_an_entry_above_the_limit_is_refused_and_one_just_below_is_stored() -> None:
    settings = BookKeeperSettings(
        ensemble_size=3, write_quorum=3, ack_quorum=2, frame_bytes_max=100_000
    )
    bench = ModelBench(settings)
    await bench.begin()
    try:
        writer = await bench.lives[-1].create(1)
        largest = settings.frame_bytes_max - frames.ADD_OVERHEAD_BYTES_MAX
        with pytest.raises(InputError, match=rf"{largest + 1} bytes is too large.*{largest}"):
            writer.append(bytes(largest + 1), lambda *_: None)
        stored: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        assert writer.append(bytes(largest), lambda _, error: stored.set_result(error)) == 0
        assert await stored is None
        assert await writer.close() == 0
        (entry,) = await (await bench.lives[-1].open(1)).read(0, 0, max_bytes=1)
        assert len(entry.payload) == largest
    finally:
        await bench.end()


@pytest.mark.parametrize("act", ["open", "delete", "describe"])
async def test_a_ledger_of_an_unknown_version_is_named_and_left_alone(act: str) -> None:
    bench = ModelBench(BookKeeperSettings(ensemble_size=3, write_quorum=3, ack_quorum=2))
    await bench.begin()
    try:
        store, metadata = bench.lives[-1], bench.cluster.metadata
        await (await store.create(7)).close()
        written = await metadata.get(LedgerPaths().ledger(7))
        assert written is not None
        newer = written.value.replace(b"Version\t3\n", b"Version\t4\n")
        assert newer != written.value
        before = await metadata.put(LedgerPaths().ledger(7), newer)
        with pytest.raises(FormatError, match=r"ledger 7.*version 4; this build knows 2 and 3"):
            await getattr(store, act)(7)
        left = await metadata.get(LedgerPaths().ledger(7))
        assert left is not None
        assert (left.value, left.stat.version) == (newer, before.version)
    finally:
        await bench.end()


async def test_a_store_that_is_closed_while_it_makes_a_ledger_gives_nobody_a_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = ModelBench(BookKeeperSettings(ensemble_size=3, write_quorum=3, ack_quorum=2))
    await bench.begin()
    made, go_on = asyncio.Event(), asyncio.Event()
    create = LedgerRegistry.create

    async def slow_answer(registry: LedgerRegistry, metadata: LedgerMetadata) -> Found:
        found = await create(registry, metadata)
        made.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(LedgerRegistry, "create", slow_answer)
    try:
        store = bench.lives[-1]
        making = asyncio.create_task(store.create(1))
        await made.wait()
        await store.close()
        go_on.set()
        # A writer of such a store would never answer what is appended to it.
        with pytest.raises(AlreadyClosed):
            await asyncio.wait_for(making, 10)
    finally:
        await bench.end()
