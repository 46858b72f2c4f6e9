"""A standalone server, producers, consumers and a reader, while the server and the net are hurt.

What the clients saw is judged by the same rules as a run on real processes: among them, that an
acknowledgement that was answered is never forgotten, that no cursor goes back, and that everything
that was acknowledged arrives after the faults. Readers must find it where it was (see
`standalone_readers`).
"""

import asyncio
from contextlib import suppress
from typing import Final

from anabranch.client import Batching, BrokerRefused, Client, MessageId
from anabranch.errors import AnabranchError, Unreachable
from anabranch.ids import Position
from anabranch.runtime import Runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.scenarios.standalone_readers import SeenInOrder, read_all, wander
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, STORAGE_WEIGHTS, Nemesis
from anabranch.testing.simulation.process import ProcessFailed
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World
from anabranch.verify import payload
from anabranch.verify.recording_consumer import RecordingConsumer, place_of
from anabranch.verify.records import (
    CONNECTION_LOST,
    SERVER_KILLED,
    Drained,
    Event,
    Outcome,
    Record,
    Send,
    Sent,
    Subscribed,
    SubscriptionType,
)
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import conclude

SERVER: Final = "server"
URL: Final = f"pulsar://{SERVER}:6650"
TOPIC: Final = "persistent://public/default/orders"
RUN: Final = "00" * 8
PRODUCERS: Final = 2
MESSAGES_EACH: Final = 300
KEYS: Final = 7
ANSWERED_OF_TEN: Final = 3
"""How many acknowledgements wait for their answer; each is a write and a round trip."""
BATCHING: Final = Batching(messages_max=10, delay_s=0.05)
FAULTS: Final = 8
DRAIN_S_MAX: Final = 300.0
PATIENCE_S: Final = 2.0
"""How long a client waits at most before it cancels what it waits for."""
CANCELLED_ONE_OF: Final = 20
SNAPSHOT_ONE_OF: Final = 20
"""How often a consumer asks where its cursor is."""
ORDERED, QUEUE, STANDBY, KEYED = "ordered", "queue", "standby", "keyed"
KINDS: Final = {
    ORDERED: SubscriptionType.EXCLUSIVE,
    QUEUE: SubscriptionType.SHARED,
    STANDBY: SubscriptionType.FAILOVER,
    KEYED: SubscriptionType.KEY_SHARED,
}
PAUSE_S: Final = 0.05
"""Longest time between two messages of a producer."""
_NEEDS_DEDUPLICATION: Final = "C4"
_NOT_TIMED: Final = "C14"
"""How long clients wait is up to the faults here, not to the server."""


async def serve(runtime: Runtime, story: "Story") -> None:
    """The server's process: the same assembly as `anabranch standalone`."""
    story.server_starts()
    server = Standalone(runtime, Settings(host=SERVER, data="/data"))
    await server.start()
    failure = await server.serve_until(asyncio.Event())
    assert failure is not None, "a server without a stop signal ends only by failing"
    raise failure


class Story:
    """What happened, as the clients saw it."""

    def __init__(self, world: World, url: str = URL, topic: str = TOPIC) -> None:
        self.world = world
        self.url = url
        self.topic = topic
        self.records: list[Record] = []
        self.acknowledged: set[tuple[int, int, int]] = set()
        """Sends that were answered: producer, its epoch, seq."""
        self.delivered: dict[str, set[tuple[int, int, int]]] = {name: set() for name in KINDS}
        self.stored: set[Position] = set()
        """Entries with messages that were acknowledged to their producer."""
        self.held: dict[MessageId, bytes] = {}
        """What readers found in each place."""
        self.snapshot_one_of = SNAPSHOT_ONE_OF
        self.deduplicated = False
        """Whether the server keeps what comes again from being stored again."""
        self.progress = asyncio.Event()
        self.lives = 0

    def add(self, record: Record) -> None:
        """Keep a record, stamped with the virtual time."""
        self.records.append(record._replace(t=self.world.now_s()))

    def client(self, runtime: Runtime) -> Client:
        """A client of the server; it waits for as long as it takes."""
        return Client(self.url, runtime, on_failure=self.fail, open_timeout_s=None)

    def server_starts(self) -> None:
        """A life of the server begins, so one that there was before is over."""
        self.lives += 1
        if self.lives > 1:
            self.add(Event(SERVER_KILLED, f"life {self.lives} begins"))

    def fail(self, name: str, error: BaseException) -> None:
        """A background task of a client failed: that is never part of the story."""
        self.world.fail(ProcessFailed(f"{name}: {error!r}"), error)

    def judge(self, *, timed: bool = False) -> None:
        """Fail with the verdict if the clients saw anything they should not have.

        Judged by time they are outside of windows of trouble alone.
        """
        judge = Judge(dedup=self.deduplicated, wait_in_window_s=float("inf"))
        for record in self.records:
            judge.see(record)
        verdict = conclude(judge)
        excused = () if timed else (_NOT_TIMED,)
        wrong = [rule for rule in judge.rules if rule.violations and rule.id not in excused]
        assert not wrong, verdict.as_text()
        assert not verdict.reasons, verdict.as_text()
        for rule in judge.rules:
            # What a doubt may excuse, or is not asked, is not counted as judged.
            if rule.id not in excused and (self.deduplicated or rule.id != _NEEDS_DEDUPLICATION):
                self.world.reach(f"judged {rule.id}", rule.checked)


async def produce(
    story: Story,
    runtime: Runtime,
    number: int,
    *,
    epoch: int = 0,
    messages: int = MESSAGES_EACH,
    pause_s: float = PAUSE_S,
) -> None:
    """Publish and note every outcome."""
    client = story.client(runtime)
    producer = await client.producer(
        story.topic,
        name=f"producer-{number}-{epoch}" if epoch else f"producer-{number}",
        batching=BATCHING if number % 2 else None,
        pending_messages_max=50,
    )
    attachments = producer.attachments
    waiting: list[asyncio.Future[MessageId]] = []

    def answered(seq: int, answer: asyncio.Future[MessageId]) -> None:
        nonlocal attachments
        if producer.attachments != attachments:
            attachments = producer.attachments
            story.add(Event(CONNECTION_LOST, f"producer {number}", number))
        if answer.cancelled():
            story.add(Sent(number, epoch, seq, Outcome.UNKNOWN, None, "nobody waited"))
            return
        error = answer.exception()
        if error is None:
            found = answer.result()
            place = None if found.is_duplicate else place_of(found)
            story.acknowledged.add((number, epoch, seq))
            if place is None:
                story.world.reach("duplicate answered")
            else:
                story.stored.add(found.position)
            story.add(Sent(number, epoch, seq, Outcome.OK, place))
        else:
            refused = isinstance(error, BrokerRefused | Unreachable)
            outcome = Outcome.FAIL if refused else Outcome.UNKNOWN
            story.add(Sent(number, epoch, seq, outcome, None, str(error)))

    for seq in range(messages):
        key = f"key-{runtime.entropy.below(KEYS)}"
        data, crc = payload.build(
            run=RUN,
            producer=number,
            epoch=epoch,
            seq=seq,
            key=key,
            length=runtime.entropy.below(500),
        )
        story.add(Send(number, epoch, seq, key, crc))
        try:
            async with asyncio.timeout(runtime.entropy.uniform(0.0, PATIENCE_S)):
                answer = await producer.send_soon(data, key=key)
        except TimeoutError:
            story.world.reach("send cancelled before it was sent")
            story.add(Sent(number, epoch, seq, Outcome.FAIL, None, "there was no room"))
            continue
        answer.add_done_callback(lambda done, seq=seq: answered(seq, done))  # type: ignore[misc]
        waiting.append(answer)
        if runtime.entropy.below(CANCELLED_ONE_OF) == 0:
            story.world.reach("send cancelled")
            asyncio.get_running_loop().call_later(runtime.entropy.uniform(0, 0.1), answer.cancel)
        await asyncio.sleep(runtime.entropy.uniform(0.0, pause_s))
    if waiting:
        await asyncio.wait(waiting)
    await client.close()


async def consume(story: Story, runtime: Runtime, name: str, subscription: str) -> None:
    """Receive and acknowledge until told to stop by being crashed."""
    client = story.client(runtime)
    kind = KINDS[subscription]
    consumer = await client.consumer(
        story.topic,
        subscription,
        subscription_type=kind.value,
        queue_messages=20,
    )
    story.add(Subscribed(subscription, name, kind))
    story.progress.set()
    recording = RecordingConsumer(
        consumer,
        name=name,
        kind=kind,
        run=RUN,
        add=story.add,
        now_s=story.world.now_s,
        knows_batch_index=True,
    )
    while True:
        try:
            async with asyncio.timeout(runtime.entropy.uniform(0.0, PATIENCE_S)):
                message, said = await recording.receive()
        except TimeoutError:
            story.world.reach("receive cancelled")
            continue
        assert said is not None, f"{message.id} is no message of this run"
        story.delivered[subscription].add((said.producer, said.epoch, said.seq))
        story.progress.set()
        await acknowledge(story, runtime, recording, message.id, kind)
        if runtime.entropy.below(story.snapshot_one_of) == 0:
            await recording.snapshot()


async def read(story: Story, runtime: Runtime) -> None:
    """Read the topic, here and there, until told to stop by being crashed."""
    client = story.client(runtime)
    reader = await client.reader(story.topic, queue_messages=20)
    await wander(reader, SeenInOrder(story.stored, story.held), runtime, story.world.reach)


async def read_once_more(story: Story, runtime: Runtime) -> None:
    """Read what is left from the first message to the last; none may be missing at the end."""
    client = story.client(runtime)
    seen = SeenInOrder(story.stored, story.held)
    is_empty = await read_all(await client.reader(story.topic, queue_messages=20), seen)
    await client.close()
    last = max(story.stored)
    found = seen.way[-1].position if seen.way else None
    # A server that starts again may find every ledger done with, and trim it under the reader.
    ended_well = is_empty or (found is not None and found >= last)
    assert ended_well, f"{last} is stored, and reading ended at {found}"


async def acknowledge(
    story: Story,
    runtime: Runtime,
    consumer: RecordingConsumer,
    done: MessageId,
    kind: SubscriptionType,
) -> None:
    """Acknowledge one way or the other; only an answer settles it."""
    choice = runtime.entropy.below(10)
    ordered = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
    if choice == 0 and kind is not SubscriptionType.KEY_SHARED:
        if ordered or runtime.entropy.below(2):
            story.world.reach("ask for redelivery")
            consumer.redeliver()
        else:
            story.world.reach("refuse one message")
            consumer.negative_acknowledge(done, delay_s=runtime.entropy.uniform(0.0, 1.0))
        return
    cumulative = ordered and choice == 1
    if choice > ANSWERED_OF_TEN:
        await consumer.acknowledge_soon(done, cumulative=cumulative)
        return
    outcome = Outcome.UNKNOWN
    with suppress(TimeoutError):
        async with asyncio.timeout(runtime.entropy.uniform(0.0, PATIENCE_S)):
            outcome = await consumer.acknowledge(done, cumulative=cumulative)
    answered = outcome is Outcome.OK
    story.world.reach("acknowledgement answered" if answered else "acknowledgement in doubt")


@scenario(
    "standalone",
    set_seeds=20,
    reaches=(
        "acknowledgement answered",
        "acknowledgement in doubt",
        "ask for redelivery",
        "refuse one message",
        "receive cancelled",
        "send cancelled",
        "send cancelled before it was sent",
        "seek answered",
        "seek in doubt",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault partition",
        "fault reset",
        "fault failed_sync",
        "fault full_disk",
    ),
)
async def standalone(world: World) -> None:
    """Publish and consume through faults; then everything acknowledged must have arrived."""
    story = Story(world)
    server = world.process(SERVER)
    server.start(lambda runtime: serve(runtime, story), tolerates=(AnabranchError,))
    consumers = [("a", ORDERED), ("b", QUEUE), ("c", QUEUE)]
    for name, subscription in consumers:
        world.process(f"consumer-{name}").start(
            lambda runtime, name=name, subscription=subscription: consume(  # type: ignore[misc]
                story, runtime, name, subscription
            )
        )
    while len([record for record in story.records if isinstance(record, Subscribed)]) < 3:
        story.progress.clear()
        await story.progress.wait()
    world.process("reader").start(lambda runtime: read(story, runtime))
    producers = [world.process(f"producer-{number}") for number in range(PRODUCERS)]
    for number, process in enumerate(producers):
        process.start(lambda runtime, number=number: produce(story, runtime, number))  # type: ignore[misc]
    nemesis = Nemesis(world, [server], weights={**DEFAULT_WEIGHTS, **STORAGE_WEIGHTS})
    await nemesis.run(FAULTS)
    for process in producers:
        await process.wait_exit()
    for subscription in (ORDERED, QUEUE):
        await drain(story, subscription)
    latecomer = world.process("latecomer")
    latecomer.start(lambda runtime: read_once_more(story, runtime))
    await latecomer.wait_exit()
    world.reach("operations", len(story.records))
    story.judge()


async def drain(story: Story, subscription: str) -> int:
    """Wait until a subscription has got everything that was acknowledged, or long enough.

    Returns how much is missing.
    """
    missing = story.acknowledged - story.delivered[subscription]
    try:
        async with asyncio.timeout(DRAIN_S_MAX):
            while missing:
                story.progress.clear()
                await story.progress.wait()
                missing = story.acknowledged - story.delivered[subscription]
    except TimeoutError:
        pass
    story.add(Drained(subscription, f"{len(missing)} missing"))
    return len(missing)
