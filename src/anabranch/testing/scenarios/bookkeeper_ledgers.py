"""Ledgers on six bookies, written and recovered by three processes while everything is hurt.

The client under test is the real one, and so is the served metadata store; bookies are models that
speak the real protocol. Bookies crash, lose power, fill up, fall silent, and one of them returns
wrong bytes; writers are cut off from some bookies just when somebody else recovers their ledger;
the metadata is away in the middle of a change. What was acknowledged must be in every later reading
with the same bytes, and on as many bookies as were asked for.
"""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError, NotFound, Unreachable
from anabranch.ledgers.bookkeeper.ledger_metadata import State
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.metadata.served.client import ServedStore
from anabranch.runtime import Runtime
from anabranch.testing.bookies.clients import Client, recover
from anabranch.testing.bookies.cluster import BookieNemesis, Cluster
from anabranch.testing.bookies.promises import Promises
from anabranch.testing.scenarios.served_metadata import SERVER, URL
from anabranch.testing.scenarios.served_metadata import serve as serve_metadata
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

CLIENTS: Final = 3
FAULTS: Final = 14
OPERATIONS_MIN: Final = 2_000
LAST_LOOK_S_MAX: Final = 300.0


async def live(promises: Promises, cluster: Cluster, runtime: Runtime) -> None:
    """A client's process, until the story is over."""
    metadata, store = await cluster.open(runtime)
    listening = asyncio.ensure_future(listen(promises.world, metadata))
    await Client(promises, runtime, store, cluster.hunter.recovering).work()
    await metadata.close()
    await listening


async def listen(world: World, metadata: ServedStore) -> None:
    """Note what becomes of a client's session."""
    async for event in metadata.session_events():
        world.reach(f"session: {event.value}")


async def last_look(promises: Promises, cluster: Cluster, runtime: Runtime) -> None:
    """Everything works again: each ledger can be opened, and has what was promised."""
    metadata, store = await cluster.open(runtime, patient=True)
    async with asyncio.timeout(LAST_LOOK_S_MAX):
        for ledger_id, promised in promises.ledgers.items():
            while True:
                try:
                    await recover(promises, store, ledger_id)
                except NotFound:
                    assert not promised.created, f"ledger {ledger_id} is lost"
                except AnabranchError as error:
                    promises.world.note(f"ledger {ledger_id} is not open yet: {error!r}")
                    await asyncio.sleep(1.0)
                    continue
                break
    await count_copies(promises, cluster, await LedgerRegistry.open(metadata, runtime))
    await store.close()
    await metadata.close()


async def count_copies(promises: Promises, cluster: Cluster, registry: LedgerRegistry) -> None:
    """Each entry is where the metadata say, as often as an acknowledgement needs."""
    for ledger_id, promised in promises.ledgers.items():
        if promised.shown is not None:
            found, _ = await registry.read(ledger_id)
            assert found.state is State.CLOSED, f"ledger {ledger_id} was opened again"
            assert found.last_entry_id + 1 == promised.shown, f"ledger {ledger_id} changed"
            for entry_id in range(promised.shown):
                copies = cluster.copies(found, entry_id)
                assert copies >= cluster.settings.ack_quorum, (
                    f"{copies} copies of {ledger_id}:{entry_id}"
                )
            promises.world.reach("segments", len(found.segments) - 1)


@scenario(
    "bookkeeper_ledgers",
    set_seeds=10,
    reaches=(
        "acknowledged",
        "recovered",
        "closed",
        "segments",
        "hunted add",
        "hunted by refusal",
        "hunted fence",
        "hunted recovery",
        "hunted recovery add",
        "refused: Fenced",
        "session: connection lost",
        "session: session lost",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault partition",
        "fault reset",
        "fault slow_disk",
        "fault full_bookie",
        "fault rot",
    ),
)
async def bookkeeper_ledgers(world: World) -> None:
    """Write and recover through faults; then all promises must have been kept."""
    promises = Promises(world, OPERATIONS_MIN)
    metadata = world.process(SERVER)
    metadata.start(serve_metadata, tolerates=(AnabranchError,))
    cluster = Cluster(world, URL, heard=promises.hear)
    clients = [world.process(f"client-{number}") for number in range(CLIENTS)]
    for process in clients:
        process.start(lambda runtime: live(promises, cluster, runtime), tolerates=(Unreachable,))
    # Each client and the metadata twice as often as each bookie: there are fewer of them.
    targets = [*cluster.processes, *clients, *clients, metadata, metadata]
    nemesis = BookieNemesis(world, cluster, targets)
    await nemesis.run(FAULTS)
    await promises.enough.wait()
    promises.over = True
    cluster.hunter.stop()
    for process in clients:
        await process.wait_exit()
    await world.process("auditor").run(lambda runtime: last_look(promises, cluster, runtime))
