"""Three voters of one replicated log and two clients, while voters and the net are hurt.

Each voter is a process with a journal and the metadata tree behind `consensus.replica`. A witness
checks in every moment that a term has one leader, logs match and committed records stay; in the end
the clients' puts are compared with the three trees.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from anabranch.consensus.election import Voters
from anabranch.consensus.replication import Pace
from anabranch.errors import AnabranchError
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, STORAGE_WEIGHTS, Nemesis
from anabranch.testing.simulation.process import Process, ProcessFailed
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World
from anabranch.testing.voters import state
from anabranch.testing.voters.client import Promises, VoterClient
from anabranch.testing.voters.server import Character, VoterServer, host_of
from anabranch.testing.voters.witness import Witness

VOTERS: Final = (1, 2, 3)
CLIENTS: Final = 2
BURSTS: Final = 40
BURST_PUTS_MAX: Final = 55
FAULTS: Final = 8
AGREE_S_MAX: Final = 300.0


def draw_character(rng: random.Random) -> Character:
    """How voters are driven in one world: worlds differ, so that few of them cover a lot."""
    shortest_s = rng.choice((0.3, 1.0))
    snapshot_after_bytes = rng.choice((4_000, 20_000, 1 << 20))
    return Character(
        election_s=(shortest_s, shortest_s * rng.choice((1.1, 1.5, 3.0))),
        heartbeat_s=shortest_s / 4,
        snapshot_after_bytes=snapshot_after_bytes,
        segment_bytes=rng.choice((3_000, 1 << 20)),
        loss=rng.choice((0.0, 0.02, 0.05)),
        repeat=rng.choice((0.0, 0.05)),
        late=rng.choice((0.0, 0.02, 0.1)),
        pace=Pace(rng.choice((1, 4)), rng.choice((3, 10, 1000)), 1 << 20),
    )


class Hunter:
    """Strikes where it hurts most: at those who were just elected, or have just voted."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._rng = world.rng("hunter")
        self._left = self._rng.choice((0, 10, 30))
        self._eagerness = self._rng.choice((0.3, 0.9))
        self._hesitation_s = self._rng.choice((0.001, 0.01, 0.1))
        self._cuts_share = self._rng.choice((0.1, 0.5, 0.9))
        witness.on_elected = self._elected
        witness.on_vote = self._voted

    def stop(self) -> None:
        """No more."""
        self._left = 0

    def _elected(self, voter: int) -> None:
        if self._is_tempted("elected", self._eagerness):
            process = self._world.process(host_of(voter))
            strike = self._isolate if self._rng.random() < self._cuts_share else self._kill
            self._after(self._rng.uniform(0.0, self._hesitation_s), process, strike)

    def _voted(self, voter: int) -> None:
        # At once: what a voter has told and not made durable is lost only before its next sync.
        if self._is_tempted("voter", self._eagerness / 3):
            delay_s = self._rng.uniform(0.0, self._world.conditions.sync_s)
            self._after(delay_s, self._world.process(host_of(voter)), self._kill)

    def _is_tempted(self, what: str, eagerness: float) -> bool:
        if not self._left or self._rng.random() >= eagerness:
            return False
        self._left -= 1
        self._world.reach(f"hunted {what}")
        return True

    def _after(self, delay_s: float, process: Process, what: Callable[[Process], None]) -> None:
        self._world.loop.call_later(delay_s, what, process, context=self._world.context)

    def _isolate(self, process: Process) -> None:
        name = process.machine.name
        rest = [host_of(voter) for voter in VOTERS if host_of(voter) != name]
        others = self._rng.sample(rest, self._rng.choice((1, 2)))
        cut = self._world.network.partition([name], others)
        self._after(self._rng.uniform(0.1, 1.5), process, lambda _: cut.heal())

    def _kill(self, process: Process) -> None:
        if not process.alive:
            return
        if self._rng.random() < 0.5:
            process.crash()
        else:
            process.power_cut()
        self._after(self._rng.uniform(0.01, 1.0), process, self._revive)

    def _revive(self, process: Process) -> None:
        if not process.alive:
            process.restart()


async def work(runtime: Runtime, world: World, number: int, promises: Promises) -> None:
    """A client's process: bursts of puts."""
    tasks = Tasks(lambda name, failure: world.fail(ProcessFailed(name), failure))
    client = VoterClient(runtime, tasks, f"client-{number}", promises)
    for burst in range(BURSTS):
        count = 1 + runtime.entropy.below(BURST_PUTS_MAX)
        await client.put_burst([f"/c{number}/{burst}-{place}" for place in range(count)])
        await asyncio.sleep(runtime.entropy.uniform(0.0, 0.6))
    await tasks.close()


async def read(runtime: Runtime, world: World, promises: Promises) -> None:
    """The reader's process: reads of what was acknowledged to others, until it is crashed."""
    tasks = Tasks(lambda name, failure: world.fail(ProcessFailed(name), failure))
    client = VoterClient(runtime, tasks, "reader", promises)
    while True:
        await client.read_back()
        await asyncio.sleep(runtime.entropy.uniform(0.0, 0.3))


@scenario(
    "three_voters",
    set_seeds=20,
    reaches=(
        "acknowledged",
        "in doubt",
        "read",
        "elections",
        "snapshot installed",
        "hunted elected",
        "hunted voter",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault partition",
        "fault failed_sync",
    ),
)
async def three_voters(world: World) -> None:
    """Put and read through faults; then all voters must agree and nothing acknowledged is lost."""
    witness, promises = Witness(), Promises()
    character = draw_character(world.rng("character"))
    voters = []
    for number in VOTERS:
        process = world.process(host_of(number))
        process.start(
            lambda runtime, number=number: VoterServer(  # type: ignore[misc]
                runtime, Voters(number, VOTERS), character, witness
            ).run(),
            tolerates=(AnabranchError, OSError),
        )
        voters.append(process)
    clients = [world.process(f"client-{number}") for number in range(CLIENTS)]
    for number, process in enumerate(clients):
        process.start(
            lambda runtime, number=number: work(runtime, world, number, promises)  # type: ignore[misc]
        )
    reader = world.process("reader")
    reader.start(lambda runtime: read(runtime, world, promises))
    hunter = Hunter(world, witness)
    nemesis = Nemesis(
        world, voters, weights={**DEFAULT_WEIGHTS, **STORAGE_WEIGHTS}, gap_s=(0.2, 2.5)
    )
    await nemesis.run(FAULTS)
    hunter.stop()
    for process in clients:
        await process.wait_exit()
    reader.crash()
    nemesis.heal()
    await agree(world, witness, promises)
    judge(world, witness, promises)


async def agree(world: World, witness: Witness, promises: Promises) -> None:
    """A last put must go through, and every voter must come to hold it."""
    process = world.process("last-client")

    async def last(runtime: Runtime) -> None:
        tasks = Tasks(lambda name, failure: world.fail(ProcessFailed(name), failure))
        client = VoterClient(runtime, tasks, "last-client", promises)
        attempt = 0
        while f"/last/{attempt - 1}" not in promises.acknowledged:
            await client.put_burst([f"/last/{attempt}"])
            attempt += 1
        while True:
            servers = list(witness.servers.values())
            ends = {server.applied for server in servers}
            if len(servers) == len(VOTERS) and ends == {servers[0].replica.last}:
                return
            await asyncio.sleep(0.05)

    try:
        async with asyncio.timeout(AGREE_S_MAX):
            await process.run(last)
    except TimeoutError:
        where = {
            number: (server.replica.phase.value, server.replica.term, server.applied)
            for number, server in witness.servers.items()
        }
        raise AssertionError(f"healed for {AGREE_S_MAX} s, and no agreement: {where}") from None


def judge(world: World, witness: Witness, promises: Promises) -> None:
    """Compare what clients were promised with what the voters hold."""
    trees = [state.nodes_of(server.machine) for server in witness.servers.values()]
    assert trees[0] == trees[1] == trees[2], "the states of the voters differ"
    nodes = {path: entry for path, entry in trees[0].items() if path.count("/") == 2}
    for path, value in promises.acknowledged.items():
        assert path in nodes, f"{path} was acknowledged and is lost"
        assert nodes[path].value == value, f"{path} was acknowledged with another value"
    for path, entry in nodes.items():
        assert entry.value == promises.asked.get(path), f"nobody asked for {path}"
        assert entry.native == 0, f"{path} was asked for once and written {entry.native + 1} times"
    world.reach("operations", len(promises.asked) + promises.reads)
    world.reach("acknowledged", len(promises.acknowledged))
    world.reach("in doubt", promises.in_doubt)
    world.reach("read", promises.reads)
    world.reach("elections", len(witness.leaders))
    world.reach("snapshot installed", witness.snapshots_installed)
