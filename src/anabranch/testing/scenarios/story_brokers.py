"""Brokers of a simulated cluster, and what clients saw of topics that they take over."""

import asyncio
from collections.abc import Iterable
from typing import Final

from anabranch.broker.unloading import unload
from anabranch.client import Client
from anabranch.errors import AnabranchError, OutcomeUnknown, Unreachable
from anabranch.ids import TopicName
from anabranch.ownership import ClusterOwnership, Ownership
from anabranch.runtime import Runtime
from anabranch.server.cluster_broker import ClusterBroker
from anabranch.server.cluster_setup import ClusterSetup, set_up
from anabranch.server.settings import Settings
from anabranch.testing.bookies.server import Bookie, BookieServer
from anabranch.testing.scenarios.cluster_clients import NotingClient
from anabranch.testing.scenarios.coordination_zookeeper import ModelBackend
from anabranch.testing.scenarios.standalone import Story
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.world import World
from anabranch.verify.records import CONSUMER_CONNECTION_LOST, SERVER_KILLED, Event, Record

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
URLS: Final = [f"pulsar://{name}:6650" for name in BROKERS]
BOOKIES: Final = ("bookie-1", "bookie-2", "bookie-3")
CLUSTER: Final = "river"
LEDGERS_URL: Final = "bookkeeper:?ensemble=2&write=2&ack=2"
UNLOAD_GAP_S: Final = 6.0
DEDUPLICATED_ONE_OF: Final = 2
"""How often the brokers deduplicate."""


class ClusterStory(Story):
    """What happened to clients of one topic on several brokers."""

    def __init__(self, world: World, topic: str) -> None:
        hosts = ",".join(f"{name}:6650" for name in BROKERS)
        super().__init__(world, f"pulsar://{hosts}", topic)
        self.calm = False
        """Whether nothing is hurt any more: then an owner that goes forgets nothing."""
        self.clients: list[NotingClient] = []

    def client(self, runtime: Runtime) -> Client:
        """See `Story.client`; whom a client asks first is its own choice."""
        hosts = [url.removeprefix("pulsar://") for url in URLS]
        first = runtime.entropy.below(len(hosts))
        url = "pulsar://" + ",".join([*hosts[first:], *hosts[:first]])
        client = NotingClient(url, runtime, on_failure=self.fail, open_timeout_s=None)
        self.clients.append(client)
        return client

    def outsider(self, runtime: Runtime) -> Client:
        """A client that goes where it wants to, which is not counted."""
        return super().client(runtime)

    def add(self, record: Record) -> None:
        """See `Story.add`; a consumer that comes back may have found another owner."""
        super().add(record)
        is_loss = isinstance(record, Event) and record.name == CONSUMER_CONNECTION_LOST
        if is_loss and not self.calm:
            super().add(Event(SERVER_KILLED, "perhaps another owner"))

    def topic_is_opened(self, broker: str) -> None:
        """A broker becomes the owner; what was acknowledged in memory alone is forgotten."""
        self.world.reach("taken over")
        if not self.calm:
            self.add(Event(SERVER_KILLED, f"{broker} opens the topic"))

    @property
    def hints_followed(self) -> int:
        """How often clients went where an owner had sent them."""
        return sum(client.hints_followed for client in self.clients)


class Cluster:
    """The brokers that live, the topics that are watched, and whether the storm is over."""

    def __init__(self, world: World, topics: Iterable[str]) -> None:
        self.world = world
        self.stories = [ClusterStory(world, topic) for topic in topics]
        self.deduplicates = world.rng("deduplication").randrange(DEDUPLICATED_ONE_OF) == 0
        for story in self.stories:
            story.deduplicated = self.deduplicates
        self.servers: dict[str, StoryBroker] = {}
        """By name, what its present life runs."""
        self.all_there = asyncio.Event()
        self.storm_begun = asyncio.Event()
        self.storm_over = asyncio.Event()

    def started(self, name: str, server: "StoryBroker") -> None:
        """A life of a broker has begun."""
        self.servers[name] = server
        if len(self.servers) == len(BROKERS):
            self.all_there.set()

    def owning(self, topic: str) -> list[str]:
        """The addresses of the brokers that take themselves for the owner."""
        name = TopicName.parse(topic)
        places = zip(BROKERS, URLS, strict=True)
        return [url for broker, url in places if self.servers[broker].ownership.owns(name)]

    def story_of(self, topic: TopicName) -> ClusterStory | None:
        """The story of a topic, if it has one."""
        return next((each for each in self.stories if each.topic == str(topic)), None)


class _ToldOwnership(ClusterOwnership):
    """Tells the story of each topic that is about to be opened."""

    played: Cluster

    async def require(self, topic: TopicName) -> None:
        """See `Ownership.require`."""
        await super().require(topic)
        story = self.played.story_of(topic)
        if story is not None:
            story.topic_is_opened(self.me.broker_id)


class StoryBroker(ClusterBroker):
    """A broker that gives bundles away, unasked or when told."""

    played: Cluster

    async def _ownership(self) -> Ownership:
        await super()._ownership()
        told = _ToldOwnership(self._stores.metadata, self._runtime, self._tasks, self._address())
        told.played = self.played
        return told

    @property
    def ownership(self) -> Ownership:
        """Which bundles it has."""
        return self._broker.ownership

    async def members(self) -> int:
        """How many brokers it knows."""
        ownership = self.ownership
        assert isinstance(ownership, ClusterOwnership)
        return len(await ownership.membership.brokers())

    async def restlessly_unload(self) -> None:
        """Give a bundle away now and then, as an operator would."""
        entropy, world = self._runtime.entropy, self.played.world
        await self.played.storm_begun.wait()
        while True:
            await asyncio.sleep(entropy.uniform(0.0, 2 * UNLOAD_GAP_S))
            if self.played.storm_over.is_set():
                return
            owned = self.ownership.owned()
            if not owned:
                continue
            try:
                await unload(self._broker, owned[entropy.below(len(owned))])
            except AnabranchError:
                world.reach("not unloaded")
            else:
                world.reach("unloaded")

    async def unload(self, topic: str) -> bool:
        """Give the bundle of a topic to the next broker; false if it was lost before."""
        name = TopicName.parse(topic)
        for bundle in self.ownership.owned():
            if bundle.holds(name):
                await unload(self._broker, bundle)
                return True
        return False


async def serve(runtime: Runtime, cluster: Cluster, name: str, zookeeper: ModelBackend) -> None:
    """A broker's process: the same assembly as `anabranch broker`."""
    settings = Settings(
        host=name,
        cluster=CLUSTER,
        metadata_url=zookeeper.url(runtime),
        metadata_session_timeout_s=zookeeper.timeout_s,
        ledgers_url=LEDGERS_URL,
        deduplication=cluster.deduplicates,
    )
    server = StoryBroker(runtime, settings)
    server.played = cluster
    await server.start()
    cluster.started(name, server)
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
