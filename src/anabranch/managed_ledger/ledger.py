"""A managed ledger: the endless log of one topic over a chain of ledgers, with its cursors.

A shell: positions are `chain`'s, the write path `appender`'s, durable changes `published_chain`'s,
acknowledgements `cursor`'s. What is slow runs one at a time in `SerialWork`. Once another owner
has been seen, or the outcome of a write is unknown, nothing more is accepted.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    Fenced,
    OutcomeUnknown,
    StorageError,
    Terminated,
)
from anabranch.ids import Position, check_subscription_name
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.appender import Appender, AppendResult
from anabranch.managed_ledger.chain import LedgerSpan
from anabranch.managed_ledger.cursor import Cursor, CursorHooks
from anabranch.managed_ledger.cursors import Cursors, Initial
from anabranch.managed_ledger.entry_reader import EntryReader
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.opening import OpenedChain
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.managed_ledger.retention import Retention
from anabranch.managed_ledger.storage_figures import StorageFigures
from anabranch.managed_ledger.trimming import Trimming
from anabranch.runtime.network import Buffer
from anabranch.runtime.serial_work import SerialWork
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")
T = TypeVar("T")
_MIGRATED: Final = "migrated"
"""Pulsar's name of the property."""


class ManagedLedger:
    """The log of one topic. Made by `ManagedLedgers.open` only."""

    def __init__(self, opened: OpenedChain, env: Environment, released: Callable[[], None]) -> None:
        self._released = released
        self.name = opened.name
        self.on_durable: Callable[[], None] | None = None
        """Called at most once per turn of the event loop after entries became durable."""
        self.on_failure: Callable[[Exception], None] | None = None
        """Called once when appending has failed or another owner took over: close it."""
        self._env = env
        self.clock = env.runtime.clock
        self._published = PublishedChain(opened, env)
        self._chain = opened.chain
        # Questions about positions go straight to the chain, whose docstrings describe them.
        self.next_position = opened.chain.next_position
        self.previous_position = opened.chain.previous_position
        self.first_position = opened.chain.first_position
        self.position_after = opened.chain.position_after
        self.entries_between = opened.chain.entries_between
        self._cached = env.cache.topic()
        self.figures = StorageFigures(self.clock)
        self._reader = EntryReader(
            self.name, self._published, self._cached, env.ledgers, self.figures
        )
        self._tasks = Tasks(self._task_failed)
        self._work = SerialWork(f"managed ledger {self.name}", self._tasks)
        self._loop = asyncio.get_running_loop()
        self._opened_s = env.runtime.clock.monotonic_s()
        self._wake_scheduled = False
        self._rolling = False
        self._closing: asyncio.Task[None] | None = None
        self._appender = Appender(
            self._became_durable,
            self._report_failure,
            self._roll_soon,
            env.ledgers.pressure,
            self.figures,
            entries_max=env.config.ledger_entries_max,
            bytes_max=env.config.ledger_bytes_max,
        )
        self._published.appender = self._appender
        hooks = CursorHooks(self._spawn, self._fail, self._cursor_moved)
        self._cursors = Cursors(opened.node, opened.chain, env, hooks)
        self._trimming = Trimming(
            self._published, self._cursors, self._reader, env, self._alone, self._spawn
        )
        self.use_quorums = self._published.use_quorums
        self.trim = self._trimming.trim
        self.truncate = partial(self._trimming.truncate, self._roll_soon)
        self.transient_cursor = self._cursors.transient
        self.release_cursor = self._cursors.release
        if opened.writer is None:
            self._appender.refuse(self._terminated_error())
        else:
            self._appender.start(opened.writer)

    async def load_cursors(self) -> None:
        """Take over the stored cursors; once, before anything else."""
        await self._cursors.load()

    # --- what it is ---------------------------------------------------------------------------

    @property
    def properties(self) -> Mapping[str, str]:
        """Texts that belong to the topic."""
        return self._published.document.properties

    @property
    def last_confirmed(self) -> Position:
        """The last durable entry; entry -1 of the first ledger if there is none."""
        return self._chain.last_confirmed

    @property
    def terminated(self) -> Position | None:
        """The last entry there will ever be; None while more may come."""
        return self._published.document.terminated

    @property
    def is_migrated(self) -> bool:
        """Whether it was ended because it goes on elsewhere."""
        return self.terminated is not None and self.properties.get(_MIGRATED) == "true"

    @property
    def retention(self) -> Retention:
        """How long acknowledged ledgers are kept."""
        return self._trimming.retention

    @retention.setter
    def retention(self, retention: Retention) -> None:
        self._trimming.retention = retention

    @property
    def error(self) -> Exception | None:
        """Why appends are refused; None while they are not."""
        return self._appender.error

    @property
    def is_usable(self) -> bool:
        """Whether it can go on serving: open, or terminated in good order."""
        return self._closing is None and (self.error is None or isinstance(self.error, Terminated))

    @property
    def pending_bytes(self) -> int:
        """Payload bytes of appends that have no result yet."""
        return self._appender.pending_bytes

    @property
    def ledgers(self) -> tuple[LedgerSpan, ...]:
        """The ledgers of the chain, the open one with what it holds so far."""
        spans = self._chain.spans
        if self._chain.open_id is None:
            return spans
        return (*spans[:-1], self._chain.closing_span(0))

    @property
    def size_bytes(self) -> int:
        """Payload bytes kept."""
        return self._chain.size_bytes

    @property
    def entry_count(self) -> int:
        """Entries kept."""
        return self._chain.total

    # --- writing ------------------------------------------------------------------------------

    def append(self, payload: Buffer, done: AppendResult) -> None:
        """Add an entry. `done` follows with its position, or with why there is none, in order.

        After the first failure every later append fails: close and open again.

        Raises:
            InputError: if the entry is too large; nothing was changed.
        """
        self._appender.append(payload, done)

    def _became_durable(self, entry_id: int, payload: bytes) -> Position:
        position = self._chain.extend(entry_id, len(payload))
        self._cached.add(Entry(position.ledger_id, entry_id, payload))
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake)
        return position

    def _wake(self) -> None:
        self._wake_scheduled = False
        self._roll_if_old()
        if self.on_durable is not None:
            self.on_durable()

    def _roll_if_old(self) -> None:
        age_s = self._env.runtime.clock.monotonic_s() - self._opened_s
        if age_s >= self._env.config.ledger_age_s_max and self._chain.open_entries:
            self._roll_soon()

    def _report_failure(self, error: Exception) -> None:
        _log.warning("appends_refused", name=self.name, error=str(error))
        if self.on_failure is not None:
            self._loop.call_soon(self.on_failure, error)

    def _fail(self, error: Exception) -> None:
        if self._appender.error is None:
            self._appender.refuse(error)
            self._report_failure(error)

    def _task_failed(self, name: str, failure: BaseException) -> None:
        # Expected errors were handed to whoever asked for the operation.
        if not isinstance(failure, AnabranchError):
            _log.error("task_failed", cause=failure, task=name)
            self._fail(StorageError(f"{name} failed: {failure!r}"))

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.spawn(f"{self.name}: {name}", coroutine)

    async def _alone(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an operation when no other one runs; losing the node ends everything."""

        async def guarded() -> T:
            self._refuse_if_closed()
            try:
                return await operation()
            except (Fenced, OutcomeUnknown) as error:
                self._fail(error)
                raise

        self._refuse_if_closed()
        return await self._work.run(guarded)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise AlreadyClosed(f"managed ledger {self.name} is closed")

    def _roll_soon(self) -> None:
        if not self._rolling and self._appender.error is None:
            self._rolling = True
            self._appender.pause()
            self._work.submit(self._roll)

    async def _roll(self) -> None:
        try:
            if self._appender.error is not None:
                return
            writer = await self._published.roll()
        except AnabranchError as error:
            self._fail(error)
            return
        finally:
            self._rolling = False
        self._opened_s = self._env.runtime.clock.monotonic_s()
        # What waited may fill the new ledger at once and ask for the next roll.
        self._appender.start(writer)
        self._trimming.soon()

    # --- reading ------------------------------------------------------------------------------

    def read_cached(self, start: Position, max_entries: int, max_bytes: int) -> list[Entry] | None:
        """Entries from `start` on without touching storage.

        Returns:
            Consecutive entries of one ledger, [] if none is durable yet, or None if the first
            one is not in the cache.
        """
        return self._reader.read_cached(start, max_entries, max_bytes)

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[Entry]:
        """Entries from `start` on up to the last durable one, [] if there is none.

        At least one entry, then as many as fit `max_bytes`, all of one ledger: the caller goes
        on from the last one it got.

        Raises:
            AlreadyClosed: after `close`.
            StorageError: if the ledger store lost what the chain names.
        """
        self._refuse_if_closed()
        return await self._reader.read(start, max_entries, max_bytes)

    # --- cursors ------------------------------------------------------------------------------

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The stored cursors by name."""
        return self._cursors.by_name

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Initial = "latest",
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """Return the cursor of that name; if there is none, create it durably.

        `initial` and the properties count for a new cursor only; a position is the first entry
        it wants.

        Raises:
            InvalidName: if the name may not be used.
            Fenced: if another owner took over.
        """
        check_subscription_name(name)

        return await self._alone(
            lambda: self._cursors.open(name, initial, properties or {}, cursor_properties or {})
        )

    async def delete_cursor(self, name: str) -> None:
        """Remove a cursor durably; what only it held back is trimmed.

        Raises:
            NotFound: if there is none of that name.
        """
        await self._alone(lambda: self._cursors.delete(name))
        self._trimming.soon()

    # --- trimming and the end -----------------------------------------------------------------

    def tend(self) -> None:
        """Begin what only time brings: to end an old ledger, to remove one kept long enough."""
        if self.is_usable:
            self._roll_if_old()
            self._trimming.soon()

    def _cursor_moved(self, before: Position, after: Position) -> None:
        self._trimming.cursor_moved(before, after)

    async def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set properties durably; None removes one, those not named stay."""
        await self._alone(lambda: self._published.set_properties(changes))

    async def terminate(self) -> Position:
        """End the log durably after what is in flight; return its last entry. Idempotent."""
        return await self._terminate({})

    async def migrate(self) -> Position:
        """Terminate it and mark it, in one write, as one that goes on elsewhere. Idempotent."""
        return await self._terminate({_MIGRATED: "true"})

    async def _terminate(self, properties: Mapping[str, str]) -> Position:
        async def operation() -> Position:
            if self.terminated is not None:
                if not properties.items() <= self.properties.items():
                    await self._published.set_properties(properties)
                return self.terminated
            if self._appender.error is not None:
                raise self._appender.error
            self._appender.pause()
            try:
                position = await self._published.terminate(properties)
            except AnabranchError as error:
                self._fail(error)
                raise
            self._appender.refuse(self._terminated_error())
            return position

        return await self._alone(operation)

    def _terminated_error(self) -> Terminated:
        return Terminated(f"managed ledger {self.name} was terminated at {self.terminated}")

    async def delete(self) -> None:
        """Remove everything: cursors, chain, ledgers."""

        async def operation() -> None:
            # Before anything is gone: still ours?
            await self._published.claim()
            self._appender.refuse(AlreadyClosed(f"managed ledger {self.name} was deleted"))
            await self._published.leave_writer()
            for name in list(self._cursors.by_name):
                await self._cursors.delete(name)
            await self._published.remove()

        await self._alone(operation)
        await self.close()

    async def close(self) -> None:
        """Finish what is in flight, store every acknowledgement, let go of everything."""
        if self._closing is None:
            self._appender.refuse(AlreadyClosed(f"managed ledger {self.name} is closed"))
            self._trimming.stop()
            self._closing = self._work.submit(self._close)
        await asyncio.shield(self._closing)
        await self._tasks.close()

    async def _close(self) -> None:
        await self._published.leave_writer()
        await self._cursors.close()
        self._reader.clear()
        self._released()
