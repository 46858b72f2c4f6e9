"""Removing the ledgers of a managed ledger that nobody needs any more.

Which they are is `retention`'s. The chain is published without them first and they are deleted
after that, so a crash leaves at most ledgers that nobody names.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from anabranch.errors import AlreadyClosed, AnabranchError
from anabranch.ids import Position
from anabranch.managed_ledger.cursors import Cursors
from anabranch.managed_ledger.entry_reader import EntryReader
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.opening import discard_ledger
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.managed_ledger.retention import Retention, removable
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")

Alone = Callable[[Callable[[], Coroutine[Any, Any, int]]], Awaitable[int]]
"""Runs a slow operation of the managed ledger when no other one runs."""


class Trimming:
    """Trims one managed ledger."""

    __slots__ = (
        "_alone",
        "_cursors",
        "_env",
        "_published",
        "_reader",
        "_running",
        "_spawn",
        "_stopped",
        "retention",
    )

    def __init__(
        self,
        published: PublishedChain,
        cursors: Cursors,
        reader: EntryReader,
        env: Environment,
        alone: Alone,
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._published = published
        self._cursors = cursors
        self._reader = reader
        self._env = env
        self._alone = alone
        self._spawn = spawn
        self._running = False
        self._stopped = False
        self.retention = env.config.retention

    async def trim(self) -> int:
        """Remove ledgers that every cursor has passed and retention does not keep.

        Returns:
            How many were removed; never the one being written.
        """
        await self._cursors.flush()
        return await self._alone(lambda: self._trim(self.retention))

    async def truncate(self, roll_soon: Callable[[], None]) -> int:
        """Remove every ledger that every cursor has passed, whatever retention says.

        The one being written is ended first, so that it goes too.
        """
        if self._published.chain.open_entries and self._published.writer is not None:
            roll_soon()
        await self._cursors.flush()
        return await self._alone(lambda: self._trim(Retention()))

    def soon(self) -> None:
        """Remove in the background what may go, if anything may."""
        if not self._running and not self._stopped and self._removable(self.retention):
            self._running = True
            self._spawn("trim", self._in_background())

    def cursor_moved(self, before: Position, after: Position) -> None:
        """A durable mark moved: trim if it passed the oldest ledger."""
        closed = self._published.chain.closed
        if closed and before < closed[0].last <= after:
            self.soon()

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopped = True

    def _removable(self, retention: Retention) -> int:
        now_ms = self._env.runtime.clock.wall_ms()
        chain = self._published.chain
        return removable(chain, self._cursors.slowest(), retention, now_ms)

    async def _trim(self, retention: Retention) -> int:
        count = self._removable(retention)
        if not count:
            return 0
        removed = await self._published.unlink_oldest(count)
        self._reader.forget_below(self._published.chain.lowest_id)
        self._cursors.forget_trimmed()
        for place in removed:
            await discard_ledger(self._env.ledgers, place)
        return count

    async def _in_background(self) -> None:
        try:
            await self._alone(lambda: self._trim(self.retention))
        except AlreadyClosed:
            return
        except AnabranchError as error:
            _log.warning("not_trimmed", path=self._published.node.path, error=str(error))
        finally:
            self._running = False
