"""Faults of brokers of a cluster, beside those that any process has."""

from collections.abc import Callable, Sequence
from typing import Final

from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.world import World

WEIGHTS: Final = {
    "crash": 3.0,
    "stall": 4.0,
    "cut_from_metadata": 3.0,
    "cut_from_bookies": 2.0,
    "pause": 1.0,
    "partition": 2.0,
    "one_way_partition": 1.0,
    "reset": 1.0,
    "slow_network": 0.3,
}
_STALL_SESSIONS: Final = (1.2, 4.0)


class BrokersNemesis(Nemesis):
    """Also stops brokers for longer than their session lasts, or cuts them off from a store."""

    def __init__(
        self,
        world: World,
        targets: Sequence[Process],
        *,
        metadata: Sequence[str],
        bookies: Sequence[str],
        timeout_s: float,
    ) -> None:
        self._metadata = list(metadata)
        self._bookies = list(bookies)
        self._timeout_s = timeout_s
        super().__init__(
            world,
            targets,
            weights=WEIGHTS,
            gap_s=(0.1, timeout_s),
            duration_s=(0.05, 4 * timeout_s),
        )

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            **super()._kinds(),
            "stall": self._stall,
            "cut_from_metadata": self._cut_from_metadata,
            "cut_from_bookies": self._cut_from_bookies,
        }

    def _stall(self, target: Process, duration_s: float) -> None:
        target.pause(self._timeout_s * self._rng.uniform(*_STALL_SESSIONS))

    def _cut_from_metadata(self, target: Process, duration_s: float) -> None:
        if target.name in self._metadata:
            return
        partition = self._world.network.partition([target.machine.name], self._metadata)
        self._later(self._timeout_s * self._rng.uniform(*_STALL_SESSIONS), partition.heal)

    def _cut_from_bookies(self, target: Process, duration_s: float) -> None:
        if target.name in self._metadata:
            return
        gone = self._rng.sample(self._bookies, self._rng.randrange(1, len(self._bookies) + 1))
        partition = self._world.network.partition([target.machine.name], gone)
        self._later(duration_s, partition.heal)
