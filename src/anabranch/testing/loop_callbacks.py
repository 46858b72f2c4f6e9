"""How much single callbacks of an event loop do, by name: what keeps everybody else waiting.

Counted in steps (calls of functions, in Python or in C), which are the same on every machine and
however busy it is, or in milliseconds of CPU. Only asyncio's own loop is watched.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class CallbackWork:
    """The most that callbacks of each name have done at once."""

    def __init__(self) -> None:
        self.most: dict[str, float] = {}

    def add(self, name: str, amount: float) -> None:
        """A callback has ended."""
        if amount > self.most.get(name, 0):
            self.most[name] = amount

    def longest(self, count: int) -> list[tuple[str, float]]:
        """Those that did most, the first one most of all."""
        return sorted(self.most.items(), key=lambda item: -item[1])[:count]


class _Steps:
    def __init__(self) -> None:
        self.count = 0

    def heard(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1


def _name_of(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner.get_name()))
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


@contextmanager
def _each_callback(read: Callable[[], float]) -> Iterator[CallbackWork]:
    work = CallbackWork()
    run = asyncio.Handle._run

    def watched(self: asyncio.Handle) -> None:
        name = _name_of(getattr(self, "_callback", None))
        before = read()
        run(self)
        work.add(name, read() - before)

    asyncio.Handle._run = watched  # type: ignore[method-assign]
    try:
        yield work
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


@contextmanager
def callback_steps() -> Iterator[CallbackWork]:
    """Count steps while the body runs; collections of garbage are counted by nobody."""
    steps = _Steps()
    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(steps.heard)
    try:
        with _each_callback(lambda: steps.count) as work:
            yield work
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()


@contextmanager
def callback_cpu_ms() -> Iterator[CallbackWork]:
    """Measure milliseconds of this thread's CPU while the body runs, collections included."""
    with _each_callback(lambda: time.thread_time() * 1000) as work:
        yield work
