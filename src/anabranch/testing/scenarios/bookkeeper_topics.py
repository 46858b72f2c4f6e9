"""Topics on bookies: three owners take each other's over while bookies and metadata are hurt.

Managed ledgers and cursors are the real ones, on the real client of BookKeeper. What was stored is
at its place with its bytes for every later owner (rule C8), in order and once; a cursor never goes
back behind what was answered (rule C11), of whole entries or of single messages of batches, for
which it goes to a ledger of its own; nothing is trimmed that nobody acknowledged. Somebody opens
ledgers under their writers without going on with the topics, as BookKeeper's auto-recovery does.
"""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError, InputError, Unreachable
from anabranch.runtime import Runtime
from anabranch.testing.bookies.cluster import BookieNemesis, Cluster
from anabranch.testing.bookies.topics import Owner, Repairer, Stories
from anabranch.testing.scenarios.served_metadata import SERVER, URL
from anabranch.testing.scenarios.served_metadata import serve as serve_metadata
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

OWNERS: Final = 3
TOPICS: Final = ("t/ns/persistent/one", "t/ns/persistent/two")
FAULTS: Final = 12
OPERATIONS_MIN: Final = 2_000
LAST_LOOK_S_MAX: Final = 300.0


async def own(stories: Stories, cluster: Cluster, runtime: Runtime) -> None:
    """An owner's process, until the story is over."""
    metadata, ledgers = await cluster.open(runtime)
    await Owner(stories, runtime, metadata, ledgers).work()
    await ledgers.close()
    await metadata.close()


async def repair(stories: Stories, cluster: Cluster, runtime: Runtime) -> None:
    """The process of one who repairs, until the story is over."""
    metadata, ledgers = await cluster.open(runtime)
    await Repairer(stories, runtime, metadata, ledgers).work()
    await ledgers.close()
    await metadata.close()


async def last_look(stories: Stories, cluster: Cluster, runtime: Runtime) -> None:
    """Everything works again: each topic has what was promised."""
    metadata, ledgers = await cluster.open(runtime, patient=True)
    owner = Owner(stories, runtime, metadata, ledgers)
    async with asyncio.timeout(LAST_LOOK_S_MAX):
        for topic in stories.topics:
            while True:
                try:
                    opened, _ = await owner.take_over(topic)
                except InputError:
                    raise
                except AnabranchError as error:
                    stories.world.note(f"{topic.name} is not open yet: {error!r}")
                    await asyncio.sleep(1.0)
                    continue
                await opened.close()
                break
    await ledgers.close()
    await metadata.close()


@scenario(
    "bookkeeper_topics",
    set_seeds=4,
    reaches=(
        "taken over",
        "stored",
        "flushed",
        "part of a batch answered",
        "part of a batch taken over",
        "closed",
        "not stored",
        "repaired",
        "went on behind a repair",
        "stored beside a repair",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault partition",
        "fault full_bookie",
        "fault rot",
    ),
)
async def bookkeeper_topics(world: World) -> None:
    """Take over, produce and acknowledge through faults; then all promises are looked at."""
    stories = Stories(world, TOPICS, OPERATIONS_MIN)
    metadata = world.process(SERVER)
    metadata.start(serve_metadata, tolerates=(AnabranchError,))
    cluster = Cluster(world, URL)
    owners = [world.process(f"owner-{number}") for number in range(OWNERS)]
    for process in owners:
        process.start(
            lambda runtime: own(stories, cluster, runtime),
            tolerates=(Unreachable,),
        )
    repairer = world.process("repairer")
    repairer.start(lambda runtime: repair(stories, cluster, runtime), tolerates=(Unreachable,))
    targets = [*cluster.processes, *owners, *owners, metadata, metadata]
    nemesis = BookieNemesis(world, cluster, targets)
    await nemesis.run(FAULTS)
    await stories.enough.wait()
    stories.over = True
    cluster.hunter.stop()
    for process in (*owners, repairer):
        await process.wait_exit()
    await world.process("auditor").run(lambda runtime: last_look(stories, cluster, runtime))
