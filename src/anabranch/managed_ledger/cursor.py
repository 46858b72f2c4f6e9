"""One subscription's cursor: acknowledgements in memory, made durable in the background.

A shell over the pure `Acknowledged`. Changes are plain calls; writes of the whole state follow
one after the other, each carries everything acknowledged before it began, and all who asked for
durability meanwhile share the next one. Where they go is `stored_cursor`'s.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    CursorTooLarge,
    Fenced,
    InputError,
    NotFound,
    OutcomeUnknown,
)
from anabranch.ids import Position
from anabranch.ledgers.stamps import is_reserved
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.cursor_properties import check_properties_size, refuse_reserved
from anabranch.managed_ledger.stored_cursor import StoredCursor
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")
_FLUSH_DELAY_S = limits.CURSOR_FLUSH_INTERVAL_S / 2
"""Leaves the other half of the promised time for the write itself."""

FlushDone = Callable[[Exception | None], None]


@dataclass(frozen=True, slots=True)
class CursorHooks:
    """What a cursor needs of its managed ledger."""

    spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
    lost: Callable[[Exception], None]
    """Another owner wrote the node, or it is unknown what the node holds."""
    moved: Callable[[Position, Position], None]
    """The durable mark moved from one position to another."""


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class Cursor:
    """The place of one subscription in a managed ledger."""

    __slots__ = (
        "_changes",
        "_durable_changes",
        "_error",
        "_hooks",
        "_state",
        "_stored",
        "_timer",
        "_waiters",
        "_write_task",
        "cursor_properties",
        "durable_mark_delete",
        "name",
        "properties",
    )

    def __init__(
        self,
        name: str,
        state: Acknowledged,
        stored: StoredCursor | None,
        hooks: CursorHooks,
        *,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.properties: Mapping[str, int] = dict(properties or {})
        """Numbers that belong to the position."""
        self.cursor_properties: Mapping[str, str] = dict(cursor_properties or {})
        """Texts that belong to the subscription."""
        self.durable_mark_delete = state.mark_delete
        self._state = state
        self._stored = stored
        self._hooks = hooks
        self._changes = 0
        self._durable_changes = 0
        self._waiters: list[tuple[int, FlushDone]] = []
        self._write_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        """Why nothing is written any more."""

    # --- changes ------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        """Whether it is stored, and so holds back trimming; one in memory does neither."""
        return self._stored is not None

    @property
    def mark_delete(self) -> Position:
        """Everything at or before it is acknowledged."""
        return self._state.mark_delete

    def acknowledge(self, positions: Iterable[Position]) -> None:
        """Acknowledge whole entries; unknown and acknowledged ones are passed over."""
        if self._state.acknowledge(positions):
            self._changed()

    def acknowledge_batch(self, position: Position, ack_set: Sequence[int]) -> bool:
        """Acknowledge those messages of a batch whose bit is 0; true if none is pending now.

        Raises:
            InputError: if the set is larger than any batch can be.
        """
        whole, changed = self._state.acknowledge_batch(position, ack_set)
        if changed:
            self._changed()
        return whole

    def acknowledge_cumulative(
        self, position: Position, ack_set: Sequence[int] | None = None
    ) -> None:
        """Acknowledge everything up to a position, of its own batch only what `ack_set` says.

        Raises:
            InputError: if the position is above the last entry.
        """
        if self._state.acknowledge_cumulative(position, ack_set):
            self._changed()

    def skip(self, count: int) -> int:
        """Pass over the next `count` entries that are not acknowledged; return how many there were.

        Raises:
            InputError: if the count is below 1.
        """
        if count < 1:
            raise InputError(f"cannot skip {count} entries; at least 1 is needed")
        before = self.backlog()
        self.acknowledge_cumulative(self._state.pending_position(count))
        return before - self.backlog()

    def clear(self) -> int:
        """Pass over everything up to the last entry; return how much was not acknowledged."""
        return self.skip(max(self.backlog(), 1))

    def reset(self, position: Position, ack_set: Sequence[int] = ()) -> None:
        """Continue with `position` as if nothing from there on had been acknowledged.

        Of a batch there only the messages whose bit is 1 in `ack_set`, if there is one.

        Raises:
            InputError: if the set is larger than any batch can be; nothing was changed.
        """
        self._state.reset(position, ack_set)
        self._changed()

    def move(self, position: Position, ack_set: Sequence[int] = ()) -> asyncio.Future[None]:
        """Like `reset`, and undone if it cannot be made durable; the future says which.

        If it failed and may yet be what is stored, the managed ledger is lost: only reading the
        cursor again tells where it is.

        Raises:
            InputError: at once, if the set is larger than any batch can be; nothing was changed.
        """
        before = self._state
        self._state = before.moved_to(position, ack_set)
        self._changed()
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if error is not None:
                # Here and now: the next write must not carry what is being refused.
                self._undo(before, error)
            _settle(moved, error)

        self.flush(done)
        return moved

    def _undo(self, before: Acknowledged, error: Exception) -> None:
        self._state = before
        before.forget_trimmed()
        self._changed()
        stored = self._stored
        if self._error is None and stored is not None and stored.is_in_doubt_after(error):
            self.stop(error)
            self._hooks.lost(error)

    def forget_trimmed(self) -> None:
        """Drop what is known of ledgers that are no longer in the chain."""
        self._state.forget_trimmed()

    def set_properties(self, properties: Mapping[str, int]) -> None:
        """Replace the numbers that belong to the position.

        Raises:
            InputError: if they do not fit the cursor's node.
        """
        texts = self.cursor_properties
        check_properties_size([*properties, *texts], texts.values())
        self.properties = dict(properties)
        self._changed()

    def set_cursor_properties(self, cursor_properties: Mapping[str, str]) -> None:
        """Replace the texts that belong to the subscription; those of the system stay.

        Raises:
            InputError: if they do not fit the cursor's node, or one of them is reserved.
        """
        refuse_reserved(cursor_properties)
        kept = {key: value for key, value in self.cursor_properties.items() if is_reserved(key)}
        texts = {**kept, **cursor_properties}
        check_properties_size([*self.properties, *texts], texts.values())
        self.cursor_properties = texts
        self._changed()

    # --- questions ----------------------------------------------------------------------------

    def is_acknowledged(self, position: Position) -> bool:
        """Whether a whole entry is acknowledged."""
        return self._state.is_acknowledged(position)

    def is_untouched_from(self, position: Position) -> bool:
        """Whether nothing from there on is acknowledged, not even a part of a batch."""
        return self._state.is_untouched_from(position)

    def pending_bits(self, position: Position) -> tuple[int, ...] | None:
        """Which messages of a batch are pending; None if none was acknowledged by itself."""
        return self._state.pending_bits(position)

    def next_unacknowledged(self, start: Position) -> Position:
        """The first position from `start` on that is not acknowledged; may lie past the end."""
        return self._state.next_unacknowledged(start)

    def backlog(self) -> int:
        """How many entries are not acknowledged."""
        return self._state.backlog()

    # --- durability ---------------------------------------------------------------------------

    def flush(self, done: FlushDone) -> None:
        """Call `done` once everything acknowledged before this call is durable.

        Or with the error: after `CursorTooLarge` what was durable before still is, and the cursor
        goes on.
        """
        loop = asyncio.get_running_loop()
        if self._error is not None:
            loop.call_soon(done, self._error)
        elif self._stored is None or self._changes == self._durable_changes:
            loop.call_soon(done, None)
        else:
            self._waiters.append((self._changes, done))
            self._write_soon(self._stored)

    async def flushed(self) -> None:
        """Wait until everything acknowledged before this call is durable."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flush(partial(_settle, durable))
        await durable

    def stop(self, error: Exception) -> None:
        """Write nothing any more; who waits for durability gets the error."""
        if self._error is None:
            self._error = error
        self._cancel_timer()
        self._fail_waiters(error)

    async def close(self) -> None:
        """Make everything durable, then stop; what was stopped before only lets go."""
        try:
            if self._error is None:
                await self._close_durably()
        finally:
            if self._stored is not None:
                await self._last_write()
                await self._stored.leave()

    async def _close_durably(self) -> None:
        try:
            await self.flushed()
        finally:
            self.stop(AlreadyClosed(f"cursor {self.name} is closed"))
        if self._stored is not None:
            await self._last_write()
            await self._stored.settle(self._state, self.properties, self.cursor_properties)

    async def delete(self) -> None:
        """Remove the stored cursor and stop.

        Raises:
            Fenced: if another owner has it.
            NotFound: if somebody else removed it.
            OutcomeUnknown: if it may be gone.
            AnabranchError: if the store cannot remove it now; it goes on.
        """
        assert self._stored is not None, "a cursor in memory has nothing to delete"
        self.stop(AlreadyClosed(f"cursor {self.name} was deleted"))
        await self._last_write()
        try:
            await self._stored.delete()
        except (Fenced, NotFound, OutcomeUnknown):
            raise
        except AnabranchError:
            # It is still there, and so somebody may go on using it.
            self._error = None
            if self._changes > self._durable_changes:
                self._flush_later()
            raise

    async def _last_write(self) -> None:
        # A write in flight would change the version under whoever writes next.
        if self._write_task is not None:
            await asyncio.wait([self._write_task])

    def _changed(self) -> None:
        self._changes += 1
        if self._timer is None and self._write_task is None:
            self._flush_later()

    def _flush_later(self) -> None:
        if self._stored is not None and self._error is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_FLUSH_DELAY_S, self._write_soon, self._stored)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_soon(self, stored: StoredCursor) -> None:
        self._cancel_timer()
        if self._write_task is None:
            self._write_task = self._hooks.spawn(f"cursor {self.name}", self._write(stored))

    async def _write(self, stored: StoredCursor) -> None:
        attempted = self._changes
        try:
            await self._write_once(stored)
            while self._waiters and self._error is None:
                attempted = self._changes
                await self._write_once(stored)
        except CursorTooLarge as error:
            # Trying the same again would only keep the process busy.
            self._write_failed(error)
            if self._changes == attempted:
                return
        except AnabranchError as error:
            self._write_failed(error)
        finally:
            self._write_task = None
        if self._changes > self._durable_changes:
            self._flush_later()

    async def _write_once(self, stored: StoredCursor) -> None:
        changes, mark_delete = self._changes, self._state.mark_delete
        await stored.write(self._state, self.properties, self.cursor_properties)
        self._durable_changes = changes
        before, self.durable_mark_delete = self.durable_mark_delete, mark_delete
        waiters, self._waiters = self._waiters, []
        for wanted, done in waiters:
            if wanted <= changes:
                done(None)
            else:
                self._waiters.append((wanted, done))
        self._hooks.moved(before, mark_delete)

    def _write_failed(self, error: AnabranchError) -> None:
        _log.warning("cursor_not_stored", cursor=self.name, error=str(error))
        if isinstance(error, Fenced | OutcomeUnknown):
            self.stop(error)
            self._hooks.lost(error)
        else:
            self._fail_waiters(error)

    def _fail_waiters(self, error: Exception) -> None:
        waiters, self._waiters = self._waiters, []
        for _, done in waiters:
            done(error)
