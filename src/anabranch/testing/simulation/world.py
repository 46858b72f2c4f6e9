"""A whole cluster in one thread, from one seed.

A `World` owns the loop, the network, the machines with their disks, the processes on them, and the
trace. Code that runs in it sees only a `Runtime`, as in the real world.
"""

import contextlib
import contextvars
import gc
import random
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.disk import MachineDisk
from anabranch.testing.simulation.loop import Owner, SimulatedLoop, SimulatedTask, is_dead
from anabranch.testing.simulation.network import SimulatedNetwork
from anabranch.testing.simulation.process import Incarnation, Machine, Process, ProcessFailed
from anabranch.testing.simulation.trace import Trace

T = TypeVar("T")
_CLEANUP_AWAITS_MAX = 100
TIME_LIMIT_S = 3600.0
"""Virtual time a scenario has unless it says otherwise."""


class World:
    """Everything that exists in one simulated run."""

    def __init__(self, seed: int, *, conditions: Conditions | None = None) -> None:
        self.seed = seed
        self.loop = SimulatedLoop()
        self.loop.on_error = self._unheard
        self.start_s = self.loop.time()
        self.trace = Trace(self.loop.time)
        self.conditions = conditions or Conditions.draw(self.rng("conditions"))
        self.machines: dict[str, Machine] = {}
        self.processes: dict[str, Process] = {}
        self.network = SimulatedNetwork(self)
        self.context = contextvars.Context()
        """Belongs to no process: what runs in it goes on whatever crashes."""
        self.reached: Counter[str] = Counter()
        """What a scenario says it reached: transitions taken, operations done, faults met."""
        self._failure: BaseException | None = None
        self._graveyard: list[tuple[Incarnation, list[SimulatedTask[Any]]]] = []
        self._ended = False

    def rng(self, purpose: str) -> random.Random:
        """A stream of draws of its own: more draws elsewhere do not shift it."""
        return random.Random(f"{self.seed}/{purpose}")

    def machine(self, name: str) -> Machine:
        """The machine of that name, made when first asked for."""
        machine = self.machines.get(name)
        if machine is None:
            disk = MachineDisk(name, self.rng(f"disk {name}"), self.conditions, self.trace)
            machine = self.machines[name] = Machine(name, disk)
        return machine

    def process(self, name: str, *, machine: str | None = None) -> Process:
        """The process of that name, made when first asked for, on a machine of its own or not."""
        process = self.processes.get(name)
        if process is None:
            process = self.processes[name] = Process(self, name, self.machine(machine or name))
        return process

    def now_s(self) -> float:
        """Virtual seconds since the world began."""
        return self.loop.time() - self.start_s

    def note(self, text: str) -> None:
        """Put a line into the trace, and so into the digest."""
        self.trace.record(f"note {text}")

    def reach(self, mark: str, times: int = 1) -> None:
        """Count that a transition, an operation or a fault was reached."""
        self.reached[mark] += times

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """End the run: the first failure is what `run` raises."""
        if self._failure is None:
            error.__cause__ = cause
            self._failure = error
            self.trace.record(f"failure {type(error).__name__}")
        self.loop.stop()

    def keep_dead(self, life: Incarnation) -> None:
        """Keep the suspended coroutines of a crashed process from being finalized now."""
        tasks = [task for task in self.loop.living_tasks() if task.owner is life]
        self._graveyard.append((life, tasks))

    def run(
        self,
        main: "Callable[[World], Coroutine[Any, Any, T]]",
        *,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> T:
        """Run a scenario to its end, then end the world.

        Raises:
            SimulationError: if a process failed, nothing can go on, or time ran out; or whatever
                `main` raised.
        """
        assert not self._ended, "a world runs once"
        self.loop.time_limit_s = self.start_s + time_limit_s
        collecting = gc.isenabled()
        # Collection would run finalizers at moments that differ between two runs of one seed.
        gc.disable()
        try:
            task = self.loop.create_task(main(self), name="scenario", context=self.context)
            task.add_done_callback(lambda _: self.loop.stop(), context=self.context)
            self.loop.run_forever()
            if self._failure is None:
                # Everything made in the run is young, so this finds every failure nobody heard.
                gc.collect(0)
            if self._failure is not None:
                raise self._failure
            return task.result()
        finally:
            self._end()
            if collecting:
                gc.enable()

    def _unheard(self, owner: Owner | None, context: dict[str, Any]) -> None:
        if self._ended or is_dead(owner):
            return
        name = owner.name if owner is not None else "the scenario"
        cause = context.get("exception")
        detail = f"{context.get('message')}: {cause!r}"
        self.fail(ProcessFailed(f"unheard failure in {name}: {detail}"), cause)

    def _end(self) -> None:
        """Let go of everything without letting leftovers speak."""
        self._ended = True
        ended: dict[int, None] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What a coroutine does when it is closed may start others: a nemesis heals its world.
            while left := [task for task in self.loop.living_tasks() if task.serial not in ended]:
                for process in self.processes.values():
                    if process.incarnation is not None:
                        process.incarnation.bury()
                for task in left:
                    ended[task.serial] = None
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    if coroutine is not None:
                        _close_for_good(coroutine)
            self._graveyard.clear()
            self.loop.close()


def _close_for_good(coroutine: Any) -> None:
    """End a suspended coroutine; whatever its `finally` blocks raise now concerns nobody.

    Innermost first: one that awaits again in its cleanup would else be left behind, suspended.
    """
    chain = []
    while hasattr(coroutine, "cr_await"):
        chain.append(coroutine)
        coroutine = coroutine.cr_await
    for each in reversed(chain):
        for _ in range(_CLEANUP_AWAITS_MAX):
            with contextlib.suppress(BaseException):
                each.close()
            if each.cr_frame is None:
                break
            _close_for_good(each.cr_await)  # what its cleanup has begun to wait for
