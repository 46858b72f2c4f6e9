"""Open ledgers, which we and BookKeeper's Java client recover at once, or leave to their writer."""

import asyncio
import hashlib
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from anabranch.errors import Fenced
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.bookkeeper.transitions import RECOVERED_KEY
from anabranch.ledgers.store import LedgerWriter
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.coordination import until, until_shown
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.servers.bookkeeper import BookKeeper
from anabranch.testing.servers.pulsar import java_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
PROGRAM: Final = Path(__file__).with_name("RecoverLedgers.java")
LEDGERS: Final = 24
ENTRIES: Final = 50
STEP_S: Final = 0.01
BURST: Final = 20
ANSWER_S_MAX: Final = 60
FIRST_ID: Final = 1_000_000
CREATED_IN_RECOVERY_CLOSED: Final = 2
"""The version of a node in ZooKeeper that was written twice since it was made."""


@dataclass(frozen=True)
class Recovered:
    """Where a ledger ended for one who recovered it, and from when to when that took."""

    last_entry_id: int
    length: int
    entries: str
    begun_ns: int
    over_ns: int

    @property
    def end(self) -> tuple[int, str]:
        """Not the length: a handle of Java's may tell more than the entries that it reads have."""
        return self.last_entry_id, self.entries


class JavaClient:
    """The program, which lives on, so that its recoveries take no longer than ours."""

    def __init__(self, program: asyncio.subprocess.Process) -> None:
        self._program = program

    async def make(self, ledgers: int) -> dict[int, int]:
        """How many acknowledged entries each of some new ledgers has; they are open."""
        self._say(f"make {ledgers}")
        made = [await self._answer("made") for _ in range(ledgers)]
        return {int(ledger_id): int(entries) for ledger_id, entries in made}

    async def recover(self, ledger_id: int) -> Recovered:
        self._say(f"recover {ledger_id}")
        named, last, length, entries, begun, over = await self._answer("recovered")
        assert int(named) == ledger_id
        return Recovered(int(last), int(length), entries, int(begun), int(over))

    async def confirmed(self, ledger_id: int) -> int:
        """The last entry of an open ledger that it knows to be confirmed."""
        self._say(f"confirmed {ledger_id}")
        named, last = await self._answer("confirmed")
        assert int(named) == ledger_id
        return int(last)

    def _say(self, line: str) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(line.encode() + b"\n")

    async def _answer(self, kind: str) -> list[str]:
        assert self._program.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            async for line in self._program.stdout:
                words = line.decode().split()
                if words[:1] == [kind]:
                    return words[1:]
        raise AssertionError(f"the Java client ended before it said {kind!r}")

    @classmethod
    @asynccontextmanager
    async def started(
        cls, url: str, folder: Path, *, tells_ms: int = 0
    ) -> AsyncIterator["JavaClient"]:
        program = await asyncio.create_subprocess_exec(
            *java_command(folder, "-Xmx256m", main=str(PROGRAM)),
            f"metadata-store:{url}",
            str(tells_ms),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            client = cls(program)
            await client._answer("ready")
            yield client
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, BookKeeper]]:
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 4) as bookies:
            yield ensemble.url, bookies


@pytest.fixture
async def metadata(servers: tuple[str, BookKeeper]) -> AsyncIterator[MetadataStore]:
    metadata = await open_store(servers[0], real_runtime())
    yield metadata
    await metadata.close()


@pytest.fixture
async def java(servers: tuple[str, BookKeeper], tmp_path: Path) -> AsyncIterator[JavaClient]:
    async with JavaClient.started(servers[0], tmp_path) as client:
        yield client


async def opened(metadata: MetadataStore, explicit_lac_s: float = 0.0) -> BookKeeperLedgerStore:
    # What the last entry is, bookies are told by later ones alone: recoveries have to find it.
    settings = BookKeeperSettings(password=b"secret", explicit_lac_s=explicit_lac_s)
    store = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, settings)
    await registered(store, 4)
    return store


async def recover(store: BookKeeperLedgerStore, ledger_id: int) -> Recovered:
    begun_ns = time.monotonic_ns()
    reader = await store.open(ledger_id)
    over_ns = time.monotonic_ns()
    payloads = await payloads_of(reader)
    digest = hashlib.sha256()
    for payload in payloads:
        digest.update(len(payload).to_bytes(4, "big") + payload)
    last, length = reader.last_entry_id, sum(map(len, payloads))
    return Recovered(last, length, digest.hexdigest(), begun_ns, over_ns)


class Race:
    """Two who recover the same ledgers, so that each is the first one now and then.

    Java is told earlier after each ledger that we closed, and later after each that it closed.
    """

    def __init__(self, store: BookKeeperLedgerStore, java: JavaClient) -> None:
        self.together = 0
        self.closed_by_us = 0
        self._store = store
        self._java = java
        self._head_start_s = 0.0

    async def recover(self, ledger_id: int) -> tuple[Recovered, LedgerMetadata]:
        """Both find the same, and it is what is noted, once, for all who come later."""
        ours, theirs = await asyncio.gather(self._by_us(ledger_id), self._by_java(ledger_id))
        assert ours.end == theirs.end
        metadata, version = await self._store.cluster.registry.read(ledger_id)
        assert metadata.state is State.CLOSED
        assert (metadata.last_entry_id, metadata.length) == (ours.last_entry_id, ours.length)
        assert version.native == CREATED_IN_RECOVERY_CLOSED, "it is closed once, and stays so"
        by_us = RECOVERED_KEY in metadata.custom_metadata
        self.closed_by_us += by_us
        self._head_start_s += STEP_S if by_us else -STEP_S
        self.together += ours.begun_ns < theirs.over_ns and theirs.begun_ns < ours.over_ns
        return ours, metadata

    async def _by_us(self, ledger_id: int) -> Recovered:
        await asyncio.sleep(max(self._head_start_s, 0.0))
        begun_ns = time.monotonic_ns()
        reader = await self._store.open(ledger_id)
        over_ns = time.monotonic_ns()
        payloads = await payloads_of(reader)
        digest = hashlib.sha256()
        for payload in payloads:
            digest.update(len(payload).to_bytes(4, "big") + payload)
        length = sum(map(len, payloads))
        return Recovered(reader.last_entry_id, length, digest.hexdigest(), begun_ns, over_ns)

    async def _by_java(self, ledger_id: int) -> Recovered:
        await asyncio.sleep(max(-self._head_start_s, 0.0))
        return await self._java.recover(ledger_id)

    def check(self, ledgers: int) -> None:
        """It was a race."""
        print(f"{ledgers} ledgers, {self.together} together, {self.closed_by_us} closed by us")
        assert self.together >= ledgers // 2
        assert 0 < self.closed_by_us < ledgers


class Appending:
    """A writer that goes on until its ledger takes no more."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.acknowledged = -1
        self.errors: list[Exception] = []
        self._writer = writer
        self._under_way = 0
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        appended = 0
        while not self.errors:
            for _ in range(BURST):
                self._writer.append(b"%d" % appended * 20, self._done)
                appended += 1
                self._under_way += 1
            await asyncio.sleep(0.001)

    def _done(self, entry_id: int, error: Exception | None) -> None:
        self._under_way -= 1
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged = entry_id

    async def over(self) -> None:
        await self._task
        await until(lambda: not self._under_way)


@pytest.mark.goal("core.L4", part="Java's recovery beside ours")
async def test_ledgers_of_a_living_writer_are_recovered_by_both(
    metadata: MetadataStore, java: JavaClient
) -> None:
    writers, store = await opened(metadata), await opened(metadata)
    race = Race(store, java)
    for ledger_id in range(FIRST_ID, FIRST_ID + LEDGERS):
        appending = Appending(await writers.create(ledger_id))
        await until(lambda appending=appending: appending.acknowledged >= ENTRIES)
        found, _ = await race.recover(ledger_id)
        await appending.over()
        assert appending.acknowledged <= found.last_entry_id, "what was acknowledged is there"
        assert all(isinstance(error, Fenced) for error in appending.errors)
    race.check(LEDGERS)
    await writers.close()
    await store.close()


@pytest.mark.goal("core.L4", part="Java's recovery beside ours")
async def test_ledgers_that_have_lost_a_bookie_are_recovered_by_both(
    metadata: MetadataStore, java: JavaClient, servers: tuple[str, BookKeeper]
) -> None:
    """Their writers, half of them Java's, are gone. Both look for another bookie, of two."""
    store = await opened(metadata)
    written = await java.make(LEDGERS // 2)
    writers = await opened(metadata)
    for ledger_id in range(2 * FIRST_ID, 2 * FIRST_ID + LEDGERS // 2):
        payloads = [b"%d" % number * 20 for number in range(ENTRIES)]
        await append(await writers.create(ledger_id), *payloads)
        written[ledger_id] = ENTRIES
    await writers.close()
    race = Race(store, java)
    victim, lost = servers[1].members[0], f"127.0.0.1:{servers[1].ports[0]}"
    victim.kill()
    left = 0
    try:
        for ledger_id, entries in written.items():
            found, stored = await race.recover(ledger_id)
            assert found.last_entry_id == entries - 1
            left += lost in stored.segments[0].bookies and lost not in stored.segments[-1].bookies
    finally:
        victim.start()
    race.check(len(written))
    assert left, "some were left without it"
    await store.close()


@pytest.mark.goal("core.L3", part="real bookies")
async def test_the_last_entry_is_told_while_nothing_follows_it(
    metadata: MetadataStore, servers: tuple[str, BookKeeper], tmp_path: Path
) -> None:
    """By us to Java and by Java to us; an entry itself tells only of those before it."""
    async with JavaClient.started(servers[0], tmp_path, tells_ms=200) as java:
        store = await opened(metadata, explicit_lac_s=0.2)
        ledger_id = 3 * FIRST_ID
        await append(await store.create(ledger_id), *(b"%d" % n for n in range(ENTRIES)))

        async def java_knows() -> bool:
            return await java.confirmed(ledger_id) == ENTRIES - 1

        await until_shown(java_knows)
        ((made, entries),) = (await java.make(1)).items()

        async def we_know() -> bool:
            return (await store.describe(made)).last_entry_id == entries - 1

        await until_shown(we_know)
        for known in (ledger_id, made):
            found = (await store.cluster.registry.read(known)).metadata
            assert found.state is State.OPEN, "nobody recovered it"
        await store.close()
