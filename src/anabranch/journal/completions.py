"""Telling callers how their appends ended, in the order of the appends."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

AppendDone = Callable[[Exception | None], None]


class Completions:
    """Calls that are due; whoever is told may append again at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: deque[tuple[Iterator[AppendDone], Exception | None]] = deque()

    def add(self, dones: Iterable[AppendDone], failure: Exception | None) -> None:
        """Note calls to be made after all that were noted before."""
        self._due.append((iter(dones), failure))

    def run(self) -> None:
        """Make all calls that are due."""
        while self._due:
            dones, failure = self._due[0]
            try:
                for done in dones:
                    done(failure)
            except BaseException:
                # One caller's mistake must not swallow what others are waiting for.
                self.run_soon()
                raise
            self._due.popleft()

    def run_soon(self) -> None:
        """Make the calls in the next turn of the loop."""
        self._loop.call_soon(self.run)
