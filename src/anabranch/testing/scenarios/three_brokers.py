"""Three brokers of a cluster, with clients, bookies and ZooKeeper, while brokers are hurt.

Brokers are the real assembly. In the storm they crash, stand still for longer than their session,
are cut off from the metadata store, from bookies, from clients or from each other, and give bundles
up by themselves, while clients stay with them and others come and go. In the calm after it all
brokers must name the same owners, nobody else opens a topic, and a topic that is handed over in
good order goes on where it was, by the address that its clients were given.

What the clients saw of two topics is judged by the rules of `verify`: a busy one, and a quiet one
whose consumers only hear of a new owner if the old one tells them.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.ownership.limits import BUNDLES_PER_NAMESPACE
from anabranch.runtime import Runtime
from anabranch.testing.scenarios.brokers_hurt import BrokersNemesis
from anabranch.testing.scenarios.cluster_clients import (
    ASK_AGAIN_S,
    agreed_owner,
    claim,
    intrude,
    visit,
    whereabouts,
)
from anabranch.testing.scenarios.coordination_zookeeper import ModelBackend
from anabranch.testing.scenarios.standalone import (
    KEYED,
    ORDERED,
    QUEUE,
    STANDBY,
    TOPIC,
    consume,
    drain,
    produce,
)
from anabranch.testing.scenarios.story_brokers import (
    BOOKIES,
    BROKERS,
    URLS,
    Cluster,
    ClusterStory,
    prepare,
    serve,
    start_surroundings,
)
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World
from anabranch.verify.records import WINDOW_CLOSED, WINDOW_OPENED, Event, Subscribed

QUIET: Final = "persistent://public/default/seldom"
CLAIMED: Final = "persistent://public/default/claimed"
PROBES: Final = [f"persistent://public/default/probe-{number}" for number in range(12)]
PROBED_TIMES_MAX: Final = 5
"""Topics that are looked up and never opened; some of each bundle."""
CONSUMERS: Final = {
    TOPIC: (("a", ORDERED), ("b", QUEUE), ("c", QUEUE)),
    QUIET: (("d", STANDBY), ("e", STANDBY), ("f", KEYED), ("g", KEYED)),
}
PRODUCERS: Final = 2
BUSY_MESSAGES: Final = 140
BUSY_PAUSE_S: Final = 0.5
BUSY_VISITOR, QUIET_VISITOR, CALM_PRODUCER = 11, 12, 13
FAULTS: Final = 8
CALM_UNLOADS: Final = 3
CALM_GAP_S: Final = (2.0, 4.0)
CALM_MESSAGES: Final = 40
CALM_PAUSE_S: Final = 0.5
CALM_SNAPSHOT_ONE_OF: Final = 2
SESSION_TIMEOUTS_S: Final = (4.0, 8.0)
LINKS_SLOWER: Final = (1.0, 1.0, 10.0, 50.0)
LOST_ANSWERS_MAX: Final = 0.001
"""Of all of ZooKeeper: each costs its client a connection, and this is about brokers."""


def start_clients(world: World, cluster: Cluster) -> list[Process]:
    """Begin those who publish; the ones returned end by themselves."""
    busy, quiet = cluster.stories
    over = cluster.storm_over
    producers = [world.process(f"producer-{number}") for number in range(PRODUCERS)]
    for number, process in enumerate(producers):
        process.start(
            lambda runtime, number=number: produce(  # type: ignore[misc]
                busy, runtime, number, messages=BUSY_MESSAGES, pause_s=BUSY_PAUSE_S
            )
        )
    visitors = [(busy, BUSY_VISITOR), (quiet, QUIET_VISITOR)]
    for story, number in visitors:
        process = world.process(f"visitor-{number}")
        process.start(
            lambda runtime, story=story, number=number: visit(story, runtime, number, over)  # type: ignore[misc]
        )
        producers.append(process)

    async def claimant(runtime: Runtime) -> None:
        if await claim(busy.client(runtime), runtime, CLAIMED, over) > 0:
            world.reach("claimed again")

    world.process("claimant").start(claimant)
    return [*producers, world.process("claimant")]


async def supervise(brokers: Sequence[Process]) -> None:
    """Start those again that ended by themselves, as one that gets no answer at its start does."""
    while True:
        for process in brokers:
            if not process.alive:
                process.restart()
        await asyncio.sleep(ASK_AGAIN_S)


def slow_some_links(world: World) -> None:
    """Let some clients be far away from some brokers, until all links are healed."""
    rng = world.rng("links")
    for client in [name for name in world.machines if name.startswith(("consumer", "producer"))]:
        for broker in BROKERS:
            factor = rng.choice(LINKS_SLOWER)
            world.network.link(client, broker).slowness = factor
            world.network.link(broker, client).slowness = factor


async def start_consumers(world: World, cluster: Cluster) -> None:
    """Subscribe, before anything is published."""
    for story in cluster.stories:
        consumers = CONSUMERS[story.topic]
        for name, subscription in consumers:
            world.process(f"consumer-{name}").start(
                lambda runtime, story=story, name=name, subscription=subscription: consume(  # type: ignore[misc]
                    story, runtime, name, subscription
                )
            )
        while len([r for r in story.records if isinstance(r, Subscribed)]) < len(consumers):
            story.progress.clear()
            await story.progress.wait()


async def spread(runtime: Runtime, cluster: Cluster) -> None:
    """Ask one broker for topics of all bundles: no broker gets more than its share."""
    client = cluster.stories[0].outsider(runtime)
    known = 0
    while known < len(BROKERS):
        await asyncio.sleep(ASK_AGAIN_S)
        known = min([await each.members() for each in cluster.servers.values()])
    owned: dict[str, int] = {}
    for _ in range(PROBED_TIMES_MAX):
        for topic in PROBES:
            await whereabouts(client, URLS[0], topic)
        owned = {name: len(server.ownership.owned()) for name, server in cluster.servers.items()}
        if sum(owned.values()) == BUNDLES_PER_NAMESPACE:
            break
        await asyncio.sleep(ASK_AGAIN_S)  # one has lost its session, and what it had, meanwhile
    assert sum(owned.values()) == BUNDLES_PER_NAMESPACE, f"not all bundles are taken: {owned}"
    share = -(-BUNDLES_PER_NAMESPACE // len(BROKERS))
    assert max(owned.values()) <= share, f"one broker has more than its share: {owned}"
    await client.close()


async def survey(runtime: Runtime, cluster: Cluster) -> dict[str, str]:
    """Who owns each topic, by what all brokers say."""
    client = cluster.stories[0].outsider(runtime)
    owners = {}
    for story in cluster.stories:
        url = await agreed_owner(client, URLS, story.topic, partial(cluster.owning, story.topic))
        owners[story.topic] = BROKERS[URLS.index(url)]
    await client.close()
    return owners


async def keep_intruders_out(runtime: Runtime, cluster: Cluster, owner: str) -> None:
    """A client that comes to the wrong broker is sent away, and the owner notices nothing."""
    busy = cluster.stories[0]
    await produce(busy, runtime, CALM_PRODUCER, epoch=1, messages=2)
    before = max(busy.stored).ledger_id
    client = busy.outsider(runtime)
    for url, name in zip(URLS, BROKERS, strict=True):
        if name != owner:
            await intrude(client, url, busy.topic, partial(cluster.owning, busy.topic))
    await client.close()
    await produce(busy, runtime, CALM_PRODUCER, epoch=2, messages=2)
    after = max(busy.stored).ledger_id
    assert after == before or not busy.calm, f"{owner} had to begin ledger {after} after {before}"


async def served_again(story: ClusterStory, publishing: Process) -> None:
    """Wait for the next receipt: to go on from broker to broker without one is no order."""
    before = len(story.acknowledged)
    ended = asyncio.create_task(publishing.wait_exit())
    while not ended.done() and len(story.acknowledged) == before:
        story.progress.clear()
        told = asyncio.create_task(story.progress.wait())
        await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
    ended.cancel()


async def hand_over(world: World, cluster: Cluster) -> None:
    """Unload the busy topic in good order while it is in use; nothing is excused."""
    busy = cluster.stories[0]
    surveyor = world.process("surveyor")
    hints = busy.hints_followed
    rng = world.rng("calm")
    publishing = world.process("calm")
    publishing.start(
        lambda runtime: produce(
            busy, runtime, CALM_PRODUCER, epoch=3, messages=CALM_MESSAGES, pause_s=CALM_PAUSE_S
        )
    )
    for _ in range(CALM_UNLOADS):
        await asyncio.sleep(rng.uniform(*CALM_GAP_S))
        owner = (await surveyor.run(lambda runtime: survey(runtime, cluster)))[busy.topic]
        server = cluster.servers[owner]
        unloaded = await world.process(owner).run(
            lambda _, server=server: server.unload(busy.topic)  # type: ignore[misc]
        )
        assert unloaded or not busy.calm, f"{owner} lost {busy.topic} in the calm"
        if unloaded:
            world.reach("handed over")
            await served_again(busy, publishing)
    await publishing.wait_exit()
    assert busy.hints_followed > hints or not busy.calm, "no client was told of the next owner"


@scenario(
    "three_brokers",
    set_seeds=10,
    time_limit_s=3600.0,
    reaches=(
        "acknowledgement answered",
        "acknowledgement in doubt",
        "claimed again",
        "duplicate answered",
        "fault crash",
        "fault cut_from_bookies",
        "fault cut_from_metadata",
        "fault one_way_partition",
        "fault partition",
        "fault reset",
        "fault stall",
        "handed over",
        *(f"judged C{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14)),
        "taken over",
        "unloaded",
        "zookeeper: session expired",
    ),
)
async def three_brokers(world: World) -> None:
    """Publish and consume while topics change brokers; then everything must have arrived."""
    cluster = Cluster(world, CONSUMERS)
    zookeeper = ModelBackend(
        world, timeouts_s=SESSION_TIMEOUTS_S, lost_answers_max=LOST_ANSWERS_MAX
    )
    servers = start_surroundings(world, zookeeper)
    await world.process("operator").run(lambda runtime: prepare(runtime, zookeeper))
    brokers = [world.process(name) for name in BROKERS]
    for process in brokers:
        process.start(
            lambda runtime, name=process.name: serve(runtime, cluster, name, zookeeper),  # type: ignore[misc]
            tolerates=(AnabranchError,),
        )
    supervisor = asyncio.create_task(supervise(brokers))
    await cluster.all_there.wait()
    surveyor = world.process("surveyor")
    await surveyor.run(lambda runtime: spread(runtime, cluster))
    await start_consumers(world, cluster)
    publishing = start_clients(world, cluster)
    slow_some_links(world)
    supervisor.cancel()  # the nemesis looks after them
    cluster.storm_begun.set()
    for story in cluster.stories:
        story.add(Event(WINDOW_OPENED, "storm"))
    nemesis = BrokersNemesis(
        world,
        [*brokers, *brokers, *servers],
        metadata=zookeeper.names,
        bookies=BOOKIES,
        timeout_s=zookeeper.timeout_s,
    )
    await nemesis.run(FAULTS)
    cluster.storm_over.set()
    supervisor = asyncio.create_task(supervise(brokers))
    for process in publishing:
        await process.wait_exit()
    owners = await surveyor.run(lambda runtime: survey(runtime, cluster))
    for story in cluster.stories:
        await drain_all(story)
        story.add(Event(WINDOW_CLOSED, "storm"))
        # Where segments are lost all the time a session may end at any time.
        story.calm = not world.conditions.loss
        story.snapshot_one_of = CALM_SNAPSHOT_ONE_OF
    await surveyor.run(lambda runtime: keep_intruders_out(runtime, cluster, owners[TOPIC]))
    await hand_over(world, cluster)
    for story in cluster.stories:
        await drain_all(story)
        world.reach("operations", len(story.records))
        story.judge(timed=story.calm)
    supervisor.cancel()


async def drain_all(story: ClusterStory) -> None:
    """Wait until every subscription has got everything; no consumer is left with a former owner."""
    for subscription in dict.fromkeys(name for _, name in CONSUMERS[story.topic]):
        missing = await drain(story, subscription)
        assert not missing, f"{missing} messages of {story.topic} do not come to {subscription}"
