"""One process has the embedded ledger store, three others write and recover ledgers through it.

The store's process and its disk are hurt all the while; ledgers are deleted and segments compacted.
What was acknowledged must be there in every later life, in its order and with its bytes; what a
recovered ledger once showed it shows for ever; what was deleted stays deleted. At the end one bit
rots, and is either harmless or named, and nothing wrong is served.
"""

import asyncio
from typing import Final

from anabranch.errors import Corruption, FormatError, NotFound, OutcomeUnknown, StorageError
from anabranch.journal.format import HEADER_BYTES
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.ledger_service import (
    Answer,
    LedgerClient,
    Op,
    payloads_of,
    serve,
    split,
)
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, STORAGE_WEIGHTS, Nemesis
from anabranch.testing.simulation.process import Process, ProcessFailed
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

STORE: Final = "store"
FOLDER: Final = "data/ledgers"
SEGMENT_BYTES: Final = 16_000
WRITERS: Final = 3
FAULTS: Final = 8
OPERATIONS_MIN: Final = 2000
DELETE_SHARE: Final = 0.8
FACTS_AND_TAIL_BYTES: Final = 100_000
RECORD_OVERHEAD_BYTES: Final = 200


class Promised:
    """What is known of one ledger outside the process that dies."""

    def __init__(self) -> None:
        self.created = False
        self.attempted: list[bytes] = []
        self.acknowledged = 0
        self.shown: int | None = None
        """How many entries it had when it was recovered; never changes again."""
        self.deleting = False
        self.deleted = False


class Story:
    """Every promise that was made."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledgers: dict[int, Promised] = {}
        self._operations = 0
        self.enough = asyncio.Event()
        self.over = False

    def operate(self) -> None:
        """Count an operation that was answered."""
        self._operations += 1
        if self._operations == OPERATIONS_MIN:
            self.enough.set()
        self.world.reach("operations")

    def fail(self, name: str, error: BaseException) -> None:
        """A task of the store's process failed by itself: never part of the story."""
        self.world.fail(ProcessFailed(f"{name}: {error!r}"), error)

    def acknowledge(self, ledger_id: int, entry_id: int) -> None:
        """An append was answered."""
        promised = self.ledgers[ledger_id]
        assert entry_id == promised.acknowledged, f"ledger {ledger_id}: answered out of order"
        if promised.shown is not None:
            assert entry_id < promised.shown, f"{ledger_id}:{entry_id} was answered after the fence"
        promised.acknowledged += 1
        self.operate()

    def recovered(self, ledger_id: int, acknowledged: int, found: list[bytes]) -> None:
        """A ledger was opened and read; so much was acknowledged before it was asked for."""
        promised = self.ledgers[ledger_id]
        assert not promised.deleted, f"ledger {ledger_id} is back from the dead"
        assert found == promised.attempted[: len(found)], f"ledger {ledger_id}: wrong bytes"
        assert len(found) >= acknowledged, f"ledger {ledger_id}: acknowledged and lost"
        assert promised.shown in (None, len(found)), f"ledger {ledger_id} changed after recovery"
        promised.created = True
        promised.shown = len(found)
        self.operate()
        self.world.reach("recovered")

    def absent(self, ledger_id: int) -> None:
        """A ledger was not found."""
        promised = self.ledgers[ledger_id]
        assert promised.deleting or not promised.created, f"ledger {ledger_id} is lost"
        promised.deleted = promised.deleting


class Writer:
    """A process that writes ledgers of its own and takes over those of others."""

    def __init__(self, story: Story, number: int) -> None:
        self._story = story
        self._number = number

    async def main(self, runtime: Runtime) -> None:
        """Work through any number of connections until the story is over."""
        while not self._story.over:
            try:
                client = await LedgerClient.connect(runtime, STORE)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            try:
                while not self._story.over:
                    await self._round(runtime, client)
            except OutcomeUnknown:
                self._story.world.reach("outcome unknown")
            client.transport.abort()
            await asyncio.sleep(0.05)

    async def _round(self, runtime: Runtime, client: LedgerClient) -> None:
        story = self._story
        ledger_id = len(story.ledgers)
        promised = story.ledgers[ledger_id] = Promised()
        answer, _ = await client.call(Op.CREATE, ledger_id)
        if answer is not Answer.OK:
            assert answer is Answer.FAILED, f"ledger {ledger_id} was never used: {answer.name}"
            raise OutcomeUnknown("the store has failed")
        promised.created = True
        for _ in range(1 + runtime.entropy.below(4)):
            if not await self._burst(runtime, client, ledger_id):
                break
        await self._end(runtime, client, ledger_id)
        others = [n for n, other in story.ledgers.items() if other.shown is None]
        if others and runtime.entropy.below(3) == 0:
            await self._recover(client, others[runtime.entropy.below(len(others))])
        if runtime.entropy.uniform(0, 1) < DELETE_SHARE:
            await self._delete(runtime, client)

    async def _burst(self, runtime: Runtime, client: LedgerClient, ledger_id: int) -> bool:
        """Several appends in flight; False if the writer may not go on."""
        promised = self._story.ledgers[ledger_id]
        answers = []
        for _ in range(1 + runtime.entropy.below(12)):
            size = (10, 60, 300, 2000)[runtime.entropy.below(4)]
            payload = b"%d;" % runtime.entropy.below(1 << 30) * (size // 10)
            promised.attempted.append(payload)
            answer = client.ask(Op.APPEND, ledger_id, payload)
            answer.add_done_callback(lambda done: self._appended(ledger_id, done))
            answers.append(answer)
        await asyncio.wait(answers, timeout=10)
        await asyncio.sleep(runtime.entropy.uniform(0, 0.01))
        return all(a.done() and not a.exception() and a.result()[0] is Answer.OK for a in answers)

    def _appended(self, ledger_id: int, done: asyncio.Future[tuple[Answer, bytes]]) -> None:
        if done.exception() is not None:
            return
        answer, body = done.result()
        if answer is Answer.OK:
            self._story.acknowledge(ledger_id, int.from_bytes(body, "big"))
        elif answer is Answer.REFUSED:
            self._story.world.reach("fenced")

    async def _end(self, runtime: Runtime, client: LedgerClient, ledger_id: int) -> None:
        choice = runtime.entropy.below(4)
        if choice == 0:
            answer, _ = await client.call(Op.CLOSE, ledger_id)
            self._story.world.reach(f"close {answer.name}")
        elif choice == 1:
            flood = asyncio.ensure_future(self._burst(runtime, client, ledger_id))
            await asyncio.sleep(runtime.entropy.uniform(0, 0.004))
            try:
                await self._recover(client, ledger_id)
            finally:
                await flood

    async def _recover(self, client: LedgerClient, ledger_id: int) -> None:
        promised = self._story.ledgers[ledger_id]
        # What others do meanwhile may come before or after this.
        acknowledged, created, deleted = promised.acknowledged, promised.created, promised.deleted
        answer, body = await client.call(Op.RECOVER, ledger_id)
        if answer is Answer.OK and deleted == promised.deleted:
            self._story.recovered(ledger_id, acknowledged, split(body))
        elif answer is Answer.ABSENT and created:
            self._story.absent(ledger_id)

    async def _delete(self, runtime: Runtime, client: LedgerClient) -> None:
        living = [n for n, ledger in self._story.ledgers.items() if not ledger.deleting]
        ledger_id = living[runtime.entropy.below(len(living))]
        promised = self._story.ledgers[ledger_id]
        if not promised.created:
            return
        promised.deleting = True
        answer, _ = await client.call(Op.DELETE, ledger_id)
        if answer is Answer.OK:
            promised.deleted = True
            self._story.operate()
            self._story.world.reach("deleted")
            answer, _ = await client.call(Op.CREATE, ledger_id)
            assert answer is not Answer.OK, f"ledger id {ledger_id} was used twice"


async def open_store(runtime: Runtime) -> EmbeddedLedgerStore:
    """The store under test."""
    return await EmbeddedLedgerStore.open_folder(runtime.disk, FOLDER, segment_bytes=SEGMENT_BYTES)


async def check_all(story: Story, store: EmbeddedLedgerStore) -> None:
    """Hold a store to every promise."""
    listed = [ledger_id async for ledger_id in store.list()]
    assert not [n for n in listed if n not in story.ledgers], "a ledger nobody created"
    for ledger_id, promised in story.ledgers.items():
        try:
            found = await payloads_of(await store.open(ledger_id))
        except NotFound:
            story.absent(ledger_id)
        else:
            story.recovered(ledger_id, promised.acknowledged, found)


async def last_look(story: Story, runtime: Runtime) -> None:
    """Everything promised is there, and not much else."""
    store = await open_store(runtime)
    await check_all(story, store)
    await store.tidied()
    assert store.upkeep_failure is None, store.upkeep_failure
    await check_all(story, store)
    await store.close()
    living = [p for p in story.ledgers.values() if p.created and not p.deleted]
    needed = sum(
        len(payload) + RECORD_OVERHEAD_BYTES for p in living for payload in p.attempted[: p.shown]
    )
    names = await runtime.disk.list(f"{FOLDER}/journal")
    contents = [await runtime.disk.read(f"{FOLDER}/journal/{name}") for name in names]
    assert sum(map(len, contents)) <= 2 * needed + FACTS_AND_TAIL_BYTES, "room was not given back"
    rewritten = [content for content in contents if content[8:10] == b"\x00\x02"]
    story.world.reach("compacted", len(rewritten))


async def look_at_rot(story: Story, runtime: Runtime) -> None:
    """One bit is wrong: it is named, or it is harmless; no wrong byte is served."""
    if runtime.entropy.below(2):
        # Without index files the start reads every segment, else the first read finds it.
        for name in await runtime.disk.list(f"{FOLDER}/index"):
            await runtime.disk.remove(f"{FOLDER}/index/{name}")
    try:
        store = await open_store(runtime)
    except (Corruption, FormatError) as error:
        assert FOLDER in str(error)  # noqa: PT017
        story.world.reach("rot named at the start")
        return
    for ledger_id in [ledger_id async for ledger_id in store.list()]:
        promised = story.ledgers[ledger_id]
        try:
            found = await payloads_of(await store.open(ledger_id))
        except Corruption as error:
            assert ".journal at byte" in str(error)  # noqa: PT017
            story.world.reach("rot named by a read")
        else:
            assert found == promised.attempted[: promised.shown], "rot was served"
    await store.close()


def rot(world: World, process: Process) -> None:
    """Flip one bit of a segment."""
    rng = world.rng("rot")
    disk = process.machine.disk
    folder = f"{FOLDER}/journal"
    sizes = {
        path: len(disk.tree.file(path).seen)
        for name in sorted(disk.tree.folder(folder).seen)
        if len(disk.tree.file(path := f"{folder}/{name}").seen) > HEADER_BYTES
    }
    path = rng.choice(list(sizes))
    disk.flip_bit(path, rng.randrange(HEADER_BYTES, sizes[path]), rng.randrange(8))


@scenario(
    "embedded_ledgers",
    set_seeds=20,
    reaches=(
        "recovered",
        "fenced",
        "deleted",
        "compacted",
        "close OK",
        "outcome unknown",
        "rot named at the start",
        "rot named by a read",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault reset",
        "fault failed_sync",
        "fault full_disk",
    ),
)
async def embedded_ledgers(world: World) -> None:
    """Write, recover and delete through faults; then all promises must have been kept."""
    story = Story(world)

    async def main(runtime: Runtime) -> None:
        opened = await open_store(runtime)
        listed = [ledger_id async for ledger_id in opened.list()]
        assert not [n for n in listed if story.ledgers[n].deleted], "back from the dead"
        await serve(runtime, STORE, opened, story.fail)

    store = world.process(STORE)
    store.start(main, tolerates=(StorageError,))
    writers = [world.process(f"writer-{number}") for number in range(WRITERS)]
    for number, process in enumerate(writers):
        process.start(Writer(story, number).main)
    weights = {**DEFAULT_WEIGHTS, **dict.fromkeys(STORAGE_WEIGHTS, 2.0)}
    nemesis = Nemesis(world, [store], weights=weights, gap_s=(0.1, 1.0), duration_s=(0.05, 2.0))
    await nemesis.run(FAULTS)
    await story.enough.wait()
    story.over = True
    for process in writers:
        await process.wait_exit()
    if store.alive:
        store.power_cut()
    await store.run(lambda runtime: last_look(story, runtime))
    rot(world, store)
    await store.run(lambda runtime: look_at_rot(story, runtime))
