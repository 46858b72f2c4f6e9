"""Machines, the processes on them, and the lives of a process from start to crash.

A crash drops every callback of the process at once: no `finally` runs, nothing it still holds
reaches the outside. What the kernel would do for it, closing sockets and releasing locks, is done
here.
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.runtime import Runtime
from anabranch.testing.simulation.disk import FileHandle, MachineDisk, ProcessDisk
from anabranch.testing.simulation.loop import OWNER, Owner, SimulationError
from anabranch.testing.simulation.network import ProcessNetwork, SimulatedListener
from anabranch.testing.simulation.streams import Endpoint

if TYPE_CHECKING:
    from anabranch.testing.simulation.world import World

T = TypeVar("T")
Main = Callable[[Runtime], Coroutine[Any, Any, Any]]
EPOCH_MS = 1_700_000_000_000
"""The wall clock of every simulated machine when a world begins."""


class ProcessDied(SimulationError):
    """The simulated process ended before it could answer."""


class ProcessFailed(SimulationError):
    """An error left the main coroutine or a callback of a simulated process."""


class Machine:
    """A host: a disk, ports, power."""

    def __init__(self, name: str, disk: MachineDisk) -> None:
        self.name = name
        self.disk = disk
        self.up = True
        self.refusing = False
        """Whether new connections are refused, as by a full backlog or a firewall."""
        self.listeners: dict[int, SimulatedListener] = {}
        self.wall_skew_ms = 0


class SimulatedClock:
    """The clocks of a machine. Loop time is shared; only the wall clock may be wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine, start_s: float) -> None:
        self._loop = loop
        self._machine = machine
        self._start_s = start_s

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        passed_ms = int((self._loop.time() - self._start_s) * 1000)
        return EPOCH_MS + passed_ms + self._machine.wall_skew_ms

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._loop.time()


class SimulatedEntropy:
    """Repeatable draws; each life of each process has its own stream."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def token_hex(self, byte_count: int) -> str:
        """See `Entropy.token_hex`."""
        return self._rng.randbytes(byte_count).hex()

    def below(self, bound: int) -> int:
        """See `Entropy.below`."""
        return self._rng.randrange(bound)

    def uniform(self, low: float, high: float) -> float:
        """See `Entropy.uniform`."""
        return self._rng.uniform(low, high)


class Incarnation(Owner):
    """One life of a process."""

    def __init__(self, world: "World", machine: Machine, name: str, number: int) -> None:
        super().__init__(f"{name}#{number}")
        self.machine = machine
        self.loop = world.loop
        self.trace = world.trace
        self.alive = True
        self.endpoints: dict[Endpoint, None] = {}
        self.files: dict[FileHandle, None] = {}
        self.context = contextvars.Context()
        self.context.run(OWNER.set, self)
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.main: asyncio.Task[None] | None = None
        self.runtime = Runtime(
            SimulatedClock(self.loop, machine, world.start_s),
            SimulatedEntropy(world.rng(f"process {self.name}")),
            ProcessNetwork(self, world.network),
            ProcessDisk(self, machine.disk),
        )

    async def stay_alive(self) -> None:
        """Return at once, or never if this life is over."""
        if not self.alive:
            await self.loop.create_future()

    def bury(self) -> None:
        """Drop all callbacks, present and future."""
        self.alive = False
        self.held = deque(maxlen=0)


class Process:
    """A named process that can be started, crashed, paused and started again."""

    def __init__(self, world: "World", name: str, machine: Machine) -> None:
        self._world = world
        self.name = name
        self.machine = machine
        self.incarnation: Incarnation | None = None
        self.exit_error: BaseException | None = None
        """The tolerated error that ended the last life, if one did."""
        self._lives = 0
        self._main: Main | None = None
        self._tolerates: tuple[type[BaseException], ...] = ()

    @property
    def alive(self) -> bool:
        """Whether it runs (or is paused)."""
        return self.incarnation is not None

    @property
    def startable(self) -> bool:
        """Whether it has a main coroutine to start again."""
        return self._main is not None

    @property
    def runtime(self) -> Runtime:
        """The doors of the present life; begins one, without a main coroutine, if there is none."""
        return self._life().runtime

    def start(self, main: Main, *, tolerates: tuple[type[BaseException], ...] = ()) -> None:
        """Run `main(runtime)` as the process; when it returns the process has exited.

        An error that leaves it fails the run, unless it is one of `tolerates`: then the process
        has exited with it, as a server does whose disk failed, and may be restarted.
        """
        self._main, self._tolerates = main, tolerates
        self.restart()

    def restart(self) -> None:
        """Begin a new life with the same main coroutine; powers the machine on if needed."""
        assert not self.alive, f"{self.name} runs already"
        assert self._main is not None, f"{self.name} was never started"
        life, main = self._life(), self._main
        self._world.trace.record(f"start {life.name}")
        self.exit_error = None

        async def body() -> None:
            await main(life.runtime)

        life.main = task = life.loop.create_task(
            body(), name=life.name, context=life.context.copy()
        )
        task.add_done_callback(lambda done: self._main_ended(life, done), context=life.context)

    async def run(self, work: Main) -> Any:
        """Run `work(runtime)` inside the process and return its result or error.

        Raises:
            ProcessDied: if the process ends first.
        """
        life = self._life()
        name = f"{life.name} {getattr(work, '__name__', 'work')}"
        task = life.loop.create_task(work(life.runtime), name=name, context=life.context.copy())
        try:
            await asyncio.wait([task, life.ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            raise ProcessDied(f"{life.name} ended before {name!r} was done")
        return task.result()

    async def wait_exit(self) -> None:
        """Return when the present life is over."""
        if self.incarnation is not None:
            await asyncio.shield(self.incarnation.ended)

    def crash(self) -> None:
        """Kill -9: what was written to the kernel stays, everything else is gone."""
        self._end("crash")

    def power_cut(self) -> None:
        """Cut the machine's power: every process on it is gone, and all that was not synced."""
        self._world.trace.record(f"power cut {self.machine.name}")
        for process in self._world.processes.values():
            if process.machine is self.machine and process.alive:
                process._end("lost power", silent=True)
        self.machine.up = False
        self.machine.listeners.clear()
        self.machine.disk.power_cut()
        self._world.network.links_changed(f"dark {self.machine.name}")

    def pause(self, duration_s: float) -> None:
        """Stop the process for a time, as SIGSTOP, a long collection or a frozen VM would."""
        life = self.incarnation
        assert life is not None, f"{self.name} does not run"
        if life.held is not None:
            return
        self._world.trace.record(f"pause {life.name} {duration_s:.6f}")
        life.held = deque()
        life.loop.call_later(duration_s, self._resume, life, context=self._world.context)

    def _resume(self, life: Incarnation) -> None:
        if life.alive and life.held is not None:
            held, life.held = life.held, None
            self._world.trace.record(f"resume {life.name} {len(held)}")
            life.loop.release(held)

    def _life(self) -> Incarnation:
        if self.incarnation is None:
            self._lives += 1
            if not self.machine.up:
                self.machine.up = True
                self._world.network.links_changed(f"light {self.machine.name}")
            self.incarnation = Incarnation(self._world, self.machine, self.name, self._lives)
        return self.incarnation

    def _end(self, how: str, *, silent: bool = False) -> None:
        life = self.incarnation
        assert life is not None, f"{self.name} does not run"
        self._world.trace.record(f"{how} {life.name}")
        self.incarnation = None
        self._world.keep_dead(life)
        life.bury()
        for listener in list(self.machine.listeners.values()):
            if listener.owner is life:
                listener.remove()
        for endpoint in list(life.endpoints):
            if silent:
                endpoint.vanish()
            else:
                endpoint.hang_up()
        self.machine.disk.process_died(life)
        life.ended.set_result(None)

    def _main_ended(self, life: Incarnation, task: asyncio.Task[None]) -> None:
        if not life.alive:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self._tolerates):
            self._world.fail(ProcessFailed(f"{life.name} ended with {error!r}"), error)
        self.exit_error = error
        self._end("exit" if error is None else f"exit with {type(error).__name__} of")
