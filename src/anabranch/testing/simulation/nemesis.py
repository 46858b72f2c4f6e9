"""The nemesis: a schedule of faults drawn from the seed, done to a world and healed at the end.

Each seed enables a random part of the kinds a scenario allows (swarm testing): a run with only
pauses finds what a run with everything hides. Every fault is in the trace and in `faults`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.world import World

DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {
    "crash": 3.0,
    "power_cut": 2.0,
    "pause": 3.0,
    "partition": 2.0,
    "one_way_partition": 1.0,
    "reset": 3.0,
    "refuse": 0.5,
    "slow_disk": 1.0,
    "slow_network": 1.0,
    "clock_jump": 0.5,
}
"""Faults that a correct system survives without an operator; how often each relative to others."""

STORAGE_WEIGHTS: Final[Mapping[str, float]] = {"failed_sync": 0.5, "full_disk": 0.5}
"""Faults that end the process whose disk it is: start it with `tolerates`; it is restarted."""

_RESETS_MAX = 3
_ENABLED_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was done to the world."""

    at_s: float
    kind: str
    target: str
    duration_s: float

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.kind} {self.target} for {self.duration_s:.3f} s"


class Nemesis:
    """Does faults to some processes of a world."""

    def __init__(
        self,
        world: World,
        targets: Sequence[Process],
        *,
        weights: Mapping[str, float] = DEFAULT_WEIGHTS,
        gap_s: tuple[float, float] = (0.2, 3.0),
        duration_s: tuple[float, float] = (0.05, 8.0),
    ) -> None:
        assert targets, "a nemesis needs somebody to torment"
        self._world = world
        self._targets = list(targets)
        self._rng = world.rng("nemesis")
        self._gap_s = gap_s
        self._duration_s = duration_s
        unknown = sorted(weights.keys() - self._kinds().keys())
        assert not unknown, f"no such faults: {unknown}"
        self.weights = self._choose(weights)
        self.faults: list[Fault] = []
        self._undo: list[Callable[[], None]] = []

    def _choose(self, weights: Mapping[str, float]) -> dict[str, float]:
        names = [name for name in sorted(weights) if weights[name] > 0]
        chosen = [name for name in names if self._rng.random() < _ENABLED_SHARE]
        chosen = chosen or [self._rng.choice(names)]
        self._world.trace.record(f"nemesis {','.join(chosen)}")
        return {name: weights[name] for name in chosen}

    async def run(self, fault_count: int) -> None:
        """Do that many faults, one after the other or overlapping, then heal everything."""
        try:
            for _ in range(fault_count):
                await asyncio.sleep(self._rng.uniform(*self._gap_s))
                self._strike()
        except asyncio.CancelledError:
            self.heal()
            raise
        # Not in a `finally`: that would run in a world which has ended, too.
        self.heal()

    def heal(self) -> None:
        """Undo what is undoable and start every process that is down."""
        self._world.trace.record("nemesis heals")
        undo, self._undo = self._undo, []
        for step in undo:
            step()
        self._world.network.heal()
        self._world.network.slow_down(1.0)
        self._revive(self._targets)

    def _strike(self) -> None:
        kinds = list(self.weights)
        kind = self._rng.choices(kinds, [self.weights[name] for name in kinds])[0]
        target = self._rng.choice(self._targets)
        low, high = self._duration_s
        # Most faults are short, some are long: cubing a uniform draw does that.
        duration_s = low + (high - low) * self._rng.random() ** 3
        if not target.alive:
            # It is down already, by an earlier fault or by its own decision.
            kind, duration_s = "restart", 0.0
        fault = Fault(self._world.now_s(), kind, target.name, duration_s)
        self.faults.append(fault)
        self._world.reach(f"fault {kind}")
        self._world.trace.record(f"fault {kind} {target.name} {duration_s:.6f}")
        self._kinds()[kind](target, duration_s)

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            "crash": self._crash,
            "power_cut": self._power_cut,
            "restart": self._restart,
            "pause": self._pause,
            "partition": self._partition,
            "one_way_partition": self._one_way_partition,
            "reset": self._reset,
            "refuse": self._refuse,
            "slow_disk": self._slow_disk,
            "slow_network": self._slow_network,
            "clock_jump": self._clock_jump,
            "failed_sync": self._failed_sync,
            "full_disk": self._full_disk,
        }

    def _later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Undo a fault after its time, or earlier when everything is healed."""

        def once() -> None:
            if step in self._undo:
                self._undo.remove(step)
                step()

        self._undo.append(step)
        self._world.loop.call_later(delay_s, once, context=self._world.context)

    # --- the faults ---------------------------------------------------------------------------

    def _crash(self, target: Process, duration_s: float) -> None:
        target.crash()
        self._later(duration_s, lambda: self._revive([target]))

    def _power_cut(self, target: Process, duration_s: float) -> None:
        here = target.machine
        running = [p for p in self._world.processes.values() if p.machine is here and p.alive]
        target.power_cut()
        self._later(duration_s, lambda: self._revive(running))

    def _restart(self, target: Process, duration_s: float) -> None:
        self._revive([target])

    def _revive(self, processes: Sequence[Process]) -> None:
        for process in processes:
            if not process.alive and process.startable:
                process.restart()

    def _pause(self, target: Process, duration_s: float) -> None:
        target.pause(duration_s)

    def _cut(self, target: Process, duration_s: float, *, one_way: bool) -> None:
        here = target.machine.name
        rest = [name for name in self._world.machines if name != here]
        if not rest:
            return
        others = self._rng.sample(rest, self._rng.randrange(1, len(rest) + 1))
        sides = ([here], others)
        if self._rng.random() < 0.5:
            sides = (others, [here])
        partition = self._world.network.partition(*sides, one_way=one_way)
        self._later(duration_s, partition.heal)

    def _partition(self, target: Process, duration_s: float) -> None:
        self._cut(target, duration_s, one_way=False)

    def _one_way_partition(self, target: Process, duration_s: float) -> None:
        self._cut(target, duration_s, one_way=True)

    def _reset(self, target: Process, duration_s: float) -> None:
        life = target.incarnation
        ends = list(life.endpoints) if life is not None else []
        for end in self._rng.sample(ends, min(len(ends), self._rng.randrange(1, _RESETS_MAX + 1))):
            end.reset()

    def _refuse(self, target: Process, duration_s: float) -> None:
        machine = target.machine
        machine.refusing = True

        def accept() -> None:
            machine.refusing = False

        self._later(duration_s, accept)

    def _slow_disk(self, target: Process, duration_s: float) -> None:
        disk = target.machine.disk
        disk.slow_down(self._rng.choice((10.0, 100.0, 1000.0)))
        self._later(duration_s, lambda: disk.slow_down(1.0))

    def _slow_network(self, target: Process, duration_s: float) -> None:
        network = self._world.network
        network.slow_down(self._rng.choice((10.0, 100.0)))
        self._later(duration_s, lambda: network.slow_down(1.0))

    def _clock_jump(self, target: Process, duration_s: float) -> None:
        target.machine.wall_skew_ms += self._rng.randrange(-60_000, 60_001)

    def _failed_sync(self, target: Process, duration_s: float) -> None:
        disk = target.machine.disk
        disk.fail_next("sync")

        def repair() -> None:
            disk.forget_failures()
            self._revive([target])

        self._later(duration_s, repair)

    def _full_disk(self, target: Process, duration_s: float) -> None:
        disk = target.machine.disk
        disk.fill_up(spare_bytes=self._rng.randrange(10_000))

        def make_room() -> None:
            disk.make_room()
            self._revive([target])

        self._later(duration_s, make_room)
