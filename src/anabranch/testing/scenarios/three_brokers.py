"""Three brokers of a cluster, with clients, bookies and ZooKeeper, while brokers are hurt.

Brokers are the real assembly. They crash, stop for longer than their session, are cut off from the
metadata store, from bookies, from clients or from each other, and give bundles up by themselves.
What the clients saw is judged by the rules of `verify`, among them that no topic had two owners.
"""

import asyncio
from typing import Final

from anabranch.broker.unloading import unload
from anabranch.errors import AnabranchError, OutcomeUnknown, Unreachable
from anabranch.ids import TopicName
from anabranch.ownership import ClusterOwnership, Ownership
from anabranch.runtime import Runtime
from anabranch.server.cluster_broker import ClusterBroker
from anabranch.server.cluster_setup import ClusterSetup, set_up
from anabranch.server.settings import Settings
from anabranch.testing.bookies.server import Bookie, BookieServer
from anabranch.testing.scenarios.coordination_zookeeper import ModelBackend
from anabranch.testing.scenarios.standalone import ORDERED, QUEUE, Story, consume, drain, produce
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World
from anabranch.verify.records import (
    CONSUMER_CONNECTION_LOST,
    SERVER_KILLED,
    Event,
    Record,
    Subscribed,
)

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
BOOKIES: Final = ("bookie-1", "bookie-2", "bookie-3")
CLUSTER: Final = "river"
LEDGERS_URL: Final = "bookkeeper:?ensemble=2&write=2&ack=2"
PRODUCERS: Final = 2
FAULTS: Final = 8
UNLOAD_GAP_S: Final = 6.0
SESSION_TIMEOUTS_S: Final = (4.0, 8.0)
LOST_ANSWERS_MAX: Final = 0.001
"""Of all of ZooKeeper: each costs its client a connection, and this is about brokers."""
WEIGHTS: Final = {
    "crash": 3.0,
    "pause": 3.0,
    "partition": 3.0,
    "one_way_partition": 1.0,
    "reset": 1.0,
    "slow_network": 0.3,
}


class ClusterStory(Story):
    """What happened to clients of several brokers."""

    def __init__(self, world: World) -> None:
        hosts = ",".join(f"{name}:6650" for name in BROKERS)
        super().__init__(world, f"pulsar://{hosts}")
        self.over = False
        """Whether nothing is to be hurt any more."""

    def add(self, record: Record) -> None:
        """See `Story.add`; a consumer that comes back may have found another owner."""
        super().add(record)
        if isinstance(record, Event) and record.name == CONSUMER_CONNECTION_LOST:
            super().add(Event(SERVER_KILLED, "perhaps another owner"))

    def topic_is_opened(self, broker: str) -> None:
        """A broker becomes the owner; what was acknowledged in memory alone is forgotten."""
        self.world.reach("taken over")
        self.add(Event(SERVER_KILLED, f"{broker} opens the topic"))


class _ToldOwnership(ClusterOwnership):
    """Tells the story of each topic that is about to be opened."""

    story: ClusterStory

    async def require(self, topic: TopicName) -> None:
        """See `Ownership.require`."""
        await super().require(topic)
        self.story.topic_is_opened(self.me.broker_id)


class _StoryBroker(ClusterBroker):
    story: ClusterStory

    async def _ownership(self) -> Ownership:
        await super()._ownership()
        told = _ToldOwnership(self._stores.metadata, self._runtime, self._tasks, self._address())
        told.story = self.story
        return told

    async def restlessly_unload(self) -> None:
        """Give a bundle away now and then, as an operator would."""
        entropy = self._runtime.entropy
        while not self.story.over:
            await asyncio.sleep(entropy.uniform(0.0, 2 * UNLOAD_GAP_S))
            owned = self._broker.ownership.owned()
            if not owned:
                continue
            try:
                await unload(self._broker, owned[entropy.below(len(owned))])
            except AnabranchError:
                self.story.world.reach("not unloaded")
            else:
                self.story.world.reach("unloaded")


async def serve(runtime: Runtime, story: ClusterStory, name: str, zookeeper: ModelBackend) -> None:
    """A broker's process: the same assembly as `anabranch broker`."""
    settings = Settings(
        host=name,
        cluster=CLUSTER,
        metadata_url=zookeeper.url(runtime),
        metadata_session_timeout_s=zookeeper.timeout_s,
        ledgers_url=LEDGERS_URL,
    )
    server = _StoryBroker(runtime, settings)
    server.story = story
    await server.start()
    server._tasks.spawn("unload", server.restlessly_unload())
    failure = await server.serve_until(asyncio.Event())
    assert failure is not None, "a server without a stop signal ends only by failing"
    raise failure


async def prepare(runtime: Runtime, zookeeper: ModelBackend) -> None:
    """What `anabranch cluster init` does."""
    while True:
        store = await zookeeper.open(runtime, "operator")
        try:
            await set_up(store, runtime, ClusterSetup(CLUSTER), dry_run=False)
        except (OutcomeUnknown, Unreachable):
            continue
        finally:
            await store.close()
        return


def start_surroundings(world: World, zookeeper: ModelBackend) -> list[Process]:
    """Begin the metadata store and the bookies; the servers of the store are returned."""
    servers = [world.process(name) for name in zookeeper.names]
    for process in servers:
        process.start(
            lambda runtime, name=process.name: zookeeper.serve(runtime, name)  # type: ignore[misc]
        )
    for name in BOOKIES:
        bookie = Bookie(name)
        world.process(name).start(
            lambda runtime, bookie=bookie: BookieServer(  # type: ignore[misc]
                runtime, bookie, zookeeper.url(runtime), zookeeper.timeout_s
            ).run(),
            tolerates=(AnabranchError, OSError),
        )
    return servers


@scenario(
    "three_brokers",
    set_seeds=10,
    time_limit_s=3600.0,
    reaches=(
        "acknowledgement answered",
        "acknowledgement in doubt",
        "fault crash",
        "fault one_way_partition",
        "fault partition",
        "fault pause",
        "fault reset",
        "taken over",
        "unloaded",
        "zookeeper: session expired",
    ),
)
async def three_brokers(world: World) -> None:
    """Publish and consume while topics change brokers; then everything must have arrived."""
    story = ClusterStory(world)
    zookeeper = ModelBackend(
        world, timeouts_s=SESSION_TIMEOUTS_S, lost_answers_max=LOST_ANSWERS_MAX
    )
    servers = start_surroundings(world, zookeeper)
    await world.process("operator").run(lambda runtime: prepare(runtime, zookeeper))
    brokers = [world.process(name) for name in BROKERS]
    for process in brokers:
        process.start(
            lambda runtime, name=process.name: serve(runtime, story, name, zookeeper),  # type: ignore[misc]
            tolerates=(AnabranchError,),
        )
    for name, subscription in (("a", ORDERED), ("b", QUEUE), ("c", QUEUE)):
        world.process(f"consumer-{name}").start(
            lambda runtime, name=name, subscription=subscription: consume(  # type: ignore[misc]
                story, runtime, name, subscription
            )
        )
    while len([record for record in story.records if isinstance(record, Subscribed)]) < 3:
        story.progress.clear()
        await story.progress.wait()
    producers = [world.process(f"producer-{number}") for number in range(PRODUCERS)]
    for number, process in enumerate(producers):
        process.start(lambda runtime, number=number: produce(story, runtime, number))  # type: ignore[misc]
    nemesis = Nemesis(
        world,
        [*brokers, *brokers, *servers],
        weights=WEIGHTS,
        gap_s=(0.1, zookeeper.timeout_s),
        duration_s=(0.05, 4 * zookeeper.timeout_s),
    )
    await nemesis.run(FAULTS)
    story.over = True
    for process in producers:
        await process.wait_exit()
    for subscription in (ORDERED, QUEUE):
        await drain(story, subscription)
    world.reach("operations", len(story.records))
    story.judge()
