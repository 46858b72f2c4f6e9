"""The journal of a kind of operation in a metadata store: read, changed by events, listened to.

A change is a conditional write of what `advance` made of the state that was read. A write whose
answer was lost is found again by its name, so no event counts twice, and none is forgotten.
"""

import asyncio
from collections.abc import Callable

from anabranch.errors import BadVersion, OutcomeUnknown
from anabranch.metadata.announced import OPERATIONS, journal_path, past_path
from anabranch.metadata.backoff import Backoff
from anabranch.metadata.store import ABSENT, Expected, Guard, MetadataStore
from anabranch.migrations.engine.document import Written, read_journal, write_journal
from anabranch.migrations.engine.machine import Effect, Refused, advance
from anabranch.migrations.engine.state import Event, Started, State
from anabranch.migrations.engine.table import Table
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

GuardSource = Callable[[], Guard]


class Journal:
    """One kind's journal, as one process sees it."""

    def __init__(self, store: MetadataStore, runtime: Runtime, kind: str, table: Table) -> None:
        self.store = store
        self.kind = kind
        self.table = table
        self.path = journal_path(kind)
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._changed: asyncio.Future[None] | None = None
        self._last: State | None = None

    @property
    def ended(self) -> bool:
        """Whether the journal is only remembered: its store is not in use any more."""
        return self._last is not None

    def end_with(self, state: State) -> None:
        """Ask the store no more: this is how the operation has ended."""
        self._last = state
        self._wake()

    def start(self, tasks: Tasks) -> None:
        """Begin to listen to the store, for `changed`."""
        changes, sessions = self.store.watch(OPERATIONS), self.store.session_events()

        async def hear_changes() -> None:
            async for _ in changes:
                self._wake()

        async def hear_sessions() -> None:
            async for _ in sessions:
                self._wake()

        tasks.spawn(f"journal of {self.kind}", hear_changes())
        tasks.spawn(f"journal session of {self.kind}", hear_sessions())

    def changed(self) -> "asyncio.Future[None]":
        """Set once anything of any operation may have changed after this was called."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    async def read(self) -> State | None:
        """The newest state; None if the operation was never started.

        Raises:
            FormatError: if what is there is no journal that this build knows.
        """
        if self._last is not None:
            return self._last
        found, _ = await self._read()
        return None if found is None else found.state

    async def _read(self) -> tuple[Written | None, Expected]:
        await self.store.sync()
        node = await self.store.get(self.path)
        if node is None:
            return None, ABSENT
        return read_journal(node.value, self.table), node.stat.version

    async def change(
        self, event: Event, guard: GuardSource | None = None
    ) -> tuple[State, tuple[Effect, ...]]:
        """Make an event durable. Without an answer from the store it is tried again.

        Raises:
            Refused: if it does not fit what the operation is in.
            Fenced: if it comes from a driver that was replaced.
            ConflictError: if others kept changing the journal for too long.
            Unreachable: if nobody answers.
        """
        if self._last is not None:
            return self._only_look(self._last, event)
        name = self._entropy.token_hex(8)
        backoff = Backoff(self.path, self._clock, self._entropy)
        while True:
            found, version = await self._read()
            if found is not None and found.write == name:
                return found.state, ()
            before = None if found is None else found.state
            state, effects = advance(self.table, before, event, self._clock.wall_ms())
            if state == before:
                return state, effects
            if isinstance(event, Started) and found is not None:
                await self._put_away(found)
            try:
                await self._write(Written(state, name), version, guard)
            except (BadVersion, OutcomeUnknown):
                await backoff.wait()
            else:
                return state, effects

    def _only_look(self, last: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
        state, effects = advance(self.table, last, event, self._clock.wall_ms())
        if state != last:
            raise Refused(f"attempt {last.announced.attempt} is {last.phase}: its store is left")
        return state, effects

    async def _write(self, written: Written, version: Expected, guard: GuardSource | None) -> None:
        token = None if guard is None else guard()
        await self.store.put(self.path, write_journal(written), version, guard=token)
        if guard is not None:
            guard()  # a store that cannot look at guards leaves it to us, after its answer

    async def _put_away(self, over: Written) -> None:
        """Keep the journal of an attempt that ended, before the next one takes its place."""
        path = past_path(self.kind, over.state.announced.number)
        await self.store.put(path, write_journal(over))

    async def past(self) -> list[State]:
        """The attempts before the present one, oldest first."""
        folder = past_path(self.kind, 0).rpartition("/")[0]
        return [
            read_journal(node.value, self.table).state
            async for node in self.store.scan(folder)
            if node.stat.path != folder
        ]
