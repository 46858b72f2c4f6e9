"""An asyncio loop whose time is virtual: it jumps to the next timer and never waits.

What is scheduled belongs to an `Owner`, a simulated process, found through the context that asyncio
keeps with every callback. Callbacks of an owner that is paused are held back, those of a dead one
are dropped; so a crash runs no `finally` of the crashed code, as a killed process runs none.

Ready callbacks run in the order they were scheduled. asyncio promises that order inside one process
and product code may rely on it; between processes every meeting goes through the simulated network
or disk, whose seeded delays make the interleavings. Shuffling the queue would add only schedules
that no real process can show.

Nothing here knows networks, disks or faults.
"""

import asyncio
import contextvars
import heapq
import threading
from collections import deque
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
_START_S = 1_000.0
"""Not 0, so that code that takes a time of 0 for "none" is not excused."""
_RESOLUTION_S = 1e-9
_TURNS_WITHOUT_TIME_MAX = 200_000
_CANCELLED_TIMERS_KEPT = 100


class SimulationError(Exception):
    """The simulated world cannot go on."""


class Deadlock(SimulationError):
    """Nothing can ever run again, yet the scenario has not ended."""


class Livelock(SimulationError):
    """Callbacks run for ever without time going on."""


class OutOfTime(SimulationError):
    """The scenario used up the virtual time it was given."""


class Escape(SimulationError):
    """Code went to a thread, a socket or a process past the doors of `anabranch.runtime`."""


class Owner:
    """Whom callbacks belong to; `held` is None while they may run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: deque[asyncio.Handle] | None = None


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise Escape("threads, sockets and child processes escape the simulation: use runtime")


class SimulatedTask(asyncio.Task[T]):
    """A task that hashes by its number: sets of tasks iterate alike in every run of a seed."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: "SimulatedLoop",
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self.serial = serial = loop.next_serial()
        self.owner = OWNER.get() if context is None else context.get(OWNER)
        super().__init__(coro, loop=loop, name=name or f"task-{serial}", context=context)

    def __hash__(self) -> int:
        return self.serial


class SimulatedFuture(asyncio.Future[T]):
    """A future that hashes by its number, for the same reason."""

    def __init__(self, *, loop: "SimulatedLoop") -> None:
        self.serial = loop.next_serial()
        self.owner = OWNER.get()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class SimulatedLoop(asyncio.BaseEventLoop):
    """One thread, no selector, time that jumps."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _thread_id: int | None
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)
        self._clock_resolution = _RESOLUTION_S
        self._now = _START_S
        self._serial = 0
        self._turns_without_time = 0
        self.time_limit_s = float("inf")
        """The virtual time at which `OutOfTime` is raised."""
        self.on_error: Any = None
        """Called with asyncio's error context whenever a callback or task fails unheard."""

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def next_serial(self) -> int:
        """A number no other task or future of this loop has."""
        self._serial += 1
        return self._serial

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> SimulatedTask[T]:
        """Make a task that belongs to the owner of its context."""
        return SimulatedTask(coro, loop=self, name=name, context=context)

    def create_future(self) -> SimulatedFuture[Any]:
        """Make a future."""
        return SimulatedFuture(loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hand an unheard failure to the world; nothing is logged and forgotten here."""
        source = context.get("task") or context.get("future")
        if handle := context.get("handle"):
            owner = handle._context.get(OWNER)
        else:
            owner = getattr(source, "owner", None) or OWNER.get()
        if self.on_error is not None:
            self.on_error(owner, context)

    def release(self, held: deque[asyncio.Handle]) -> None:
        """Let held callbacks run, before any that were scheduled after them."""
        self._ready.extendleft(reversed(held))

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        if not ready and not self._stopping:
            self._advance()
        else:
            self._turns_without_time += 1
            if self._turns_without_time > _TURNS_WITHOUT_TIME_MAX:
                raise Livelock(f"time stands still at {self._now:.6f} s: {self.describe_waiting()}")
        now = self._now
        while timers and timers[0].when() <= now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
            if owner is None or owner.held is None:
                handle._run()
            else:
                owner.held.append(handle)

    def _advance(self) -> None:
        """Jump to the next timer that was not cancelled."""
        timers = self._scheduled
        if self._timer_cancelled_count > max(_CANCELLED_TIMERS_KEPT, len(timers) // 2):
            for timer in timers:
                if timer._cancelled:
                    timer._scheduled = False  # type: ignore[attr-defined]
            # In place: `_run_once` and the base class hold on to this very list.
            timers[:] = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1
        if not timers:
            raise Deadlock(f"nothing will ever run again: {self.describe_waiting()}")
        when = timers[0].when()
        if when > self.time_limit_s:
            raise OutOfTime(
                f"unfinished at {self.time_limit_s:.1f} virtual s: {self.describe_waiting()}"
            )
        if when > self._now:
            self._now = when
            self._turns_without_time = 0

    def describe_waiting(self) -> str:
        """Which tasks wait, and where."""
        waiting = [task for task in self.living_tasks() if not is_dead(task.owner)]
        if not waiting:
            return "no task is left"
        return "; ".join(f"{task.get_name()} waits at {_place(task)}" for task in waiting)

    def living_tasks(self) -> list[SimulatedTask[Any]]:
        """Every task that has not ended, oldest first."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted(tasks, key=lambda task: task.serial)

    def _process_events(self, event_list: Any) -> None:
        """There is no selector, hence no events."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator that is left behind by a world that has ended says nothing more."""
        if self.is_running():
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    def _write_to_self(self) -> None:
        if threading.get_ident() != self._thread_id:
            raise Escape("a thread called into the simulated loop: put its work behind runtime")

    run_in_executor: Any = _refuse
    create_connection: Any = _refuse
    create_server: Any = _refuse
    create_datagram_endpoint: Any = _refuse
    getaddrinfo: Any = _refuse
    getnameinfo: Any = _refuse
    connect_read_pipe: Any = _refuse
    connect_write_pipe: Any = _refuse
    subprocess_exec: Any = _refuse
    subprocess_shell: Any = _refuse
    add_reader: Any = _refuse
    add_writer: Any = _refuse
    sock_connect: Any = _refuse
    sock_sendall: Any = _refuse
    sock_recv: Any = _refuse
    add_signal_handler: Any = _refuse


def is_dead(owner: Owner | None) -> bool:
    """Whether callbacks of this owner are dropped for good."""
    return owner is not None and owner.held is not None and owner.held.maxlen == 0


def _place(task: asyncio.Task[Any]) -> str:
    """The file and line of the innermost coroutine a task is suspended in."""
    inner: Any = task.get_coro()
    while isinstance(awaited := getattr(inner, "cr_await", None), CoroutineType):
        inner = awaited
    frame = getattr(inner, "cr_frame", None)
    if frame is None:
        return "its end"
    code = frame.f_code
    file = "/".join(code.co_filename.split("/")[-2:])
    return f"{file}:{frame.f_lineno} in {code.co_qualname}"
