"""Decoded documents of a store, kept in memory for as long as the store says nothing else.

What a process wrote itself it sees at once; what others wrote it sees when the store's watch tells
of it. An older value is never served after a newer one was written here or told of. Values are
shared between all who ask: treat them as constants.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from anabranch import limits
from anabranch.errors import BadVersion, FormatError, NotFound
from anabranch.metadata.backoff import Backoff
from anabranch.metadata.cache_entries import ENTRY_OVERHEAD_BYTES, BoundedEntries, Entry
from anabranch.metadata.parted import part_holding
from anabranch.metadata.paths import ROOT, ancestors_of, is_within, parent_of
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Event,
    EventKind,
    Expected,
    MetadataStore,
    Revision,
    SessionEvent,
    Stat,
)
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

T = TypeVar("T")
V = TypeVar("V")


class _Pending:
    """A request under way, and what happened meanwhile that its answer may not show."""

    __slots__ = ("overtaken", "told_to")

    def __init__(self) -> None:
        self.overtaken = False
        self.told_to: Revision | None = None
        """The newest change of the node that the watch told of."""

    def shows_newest(self, stat: Stat | None) -> bool:
        """Whether nobody has heard of a state newer than the answer's."""
        if self.overtaken:
            return False
        return self.told_to is None or (stat is not None and self.told_to <= stat.revision)


_PendingByPath = dict[str, list[_Pending]]


class MetadataCache(Generic[T]):
    """One kind of document, at or below one path."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        *,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
        prefix: str = "/",
        entries_max: int = limits.CACHE_ENTRIES_MAX,
        bytes_max: int = limits.CACHE_BYTES_MAX,
    ) -> None:
        """`decode` raises ValueError or FormatError for bytes that are no such document."""
        self._store = part_holding(store, prefix)
        self._clock = runtime.clock
        self._entropy = runtime.entropy
        self._decode = decode
        self._encode = encode
        self._prefix = prefix
        self._values: BoundedEntries[T | None] = BoundedEntries(
            entries_max=entries_max, bytes_max=bytes_max
        )
        self._children: BoundedEntries[list[str]] = BoundedEntries(
            entries_max=entries_max, bytes_max=bytes_max
        )
        self._pending: _PendingByPath = {}
        self._pending_children: _PendingByPath = {}
        self._connected = True

    def start(self, tasks: Tasks) -> None:
        """Begin to listen to the store; before anything is read."""
        changes, sessions = self._store.watch(self._prefix), self._store.session_events()

        async def hear_changes() -> None:
            async for event in changes:
                self._changed(event)

        async def hear_sessions() -> None:
            async for event in sessions:
                self._connected = event in (
                    SessionEvent.RECONNECTED,
                    SessionEvent.SESSION_REESTABLISHED,
                )

        tasks.spawn("cache changes", hear_changes())
        tasks.spawn("cache session", hear_sessions())

    # --- reading ------------------------------------------------------------------------------

    async def get(self, path: str) -> T | None:
        """The document at a path; None if there is none.

        Raises:
            FormatError: naming the path, if what is there cannot be decoded.
        """
        value, _ = await self.get_with_stat(path)
        return value

    async def get_with_stat(self, path: str) -> tuple[T | None, Stat | None]:
        """The document with its stat; (None, None) if there is none.

        Raises:
            FormatError: naming the path, if what is there cannot be decoded.
        """
        assert is_within(self._prefix, path), f"{path} is not watched: {self._prefix} is"
        entry = self._fresh(self._values.get(path))
        if entry is not None:
            return entry.value, entry.stat
        while True:
            with _request(self._pending, path) as pending:
                node = await self._store.get(path)
            if not pending.shows_newest(None if node is None else node.stat):
                continue
            now_s = self._clock.monotonic_s()
            if node is None:
                size_bytes = len(path) + ENTRY_OVERHEAD_BYTES
                self._values.keep(path, Entry(None, None, size_bytes, now_s))
                return None, None
            value = self._decoded(path, node.value)
            self._keep(path, value, node.stat, len(node.value))
            return value, node.stat

    def get_if_cached(self, path: str) -> T | None:
        """The document if it is at hand; never asks the store."""
        entry = self._values.get(path)
        return None if entry is None else entry.value

    async def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        assert is_within(self._prefix, path), f"{path} is not watched: {self._prefix} is"
        entry = self._fresh(self._children.get(path))
        if entry is not None:
            return list(entry.value)
        while True:
            with _request(self._pending_children, path) as pending:
                names = await self._store.children(path)
            if not pending.overtaken:
                size_bytes = sum(map(len, names)) + len(path) + ENTRY_OVERHEAD_BYTES
                now_s = self._clock.monotonic_s()
                self._children.keep(path, Entry(names, None, size_bytes, now_s))
                return list(names)

    def _fresh(self, entry: Entry[V] | None) -> Entry[V] | None:
        """The entry unless it is old; while nobody can answer, an old one is as good as any."""
        if entry is None or not self._connected:
            return entry
        age_s = self._clock.monotonic_s() - entry.read_s
        return entry if age_s < limits.CACHE_ENTRY_AGE_S_MAX else None

    def _decoded(self, path: str, data: bytes) -> T:
        try:
            return self._decode(data)
        except (ValueError, FormatError) as error:
            raise FormatError(f"what is stored at {path} cannot be read: {error}") from error

    def _keep(self, path: str, value: T, stat: Stat, value_bytes: int) -> None:
        size_bytes = value_bytes + len(path) + ENTRY_OVERHEAD_BYTES
        self._values.keep(path, Entry(value, stat, size_bytes, self._clock.monotonic_s()))

    # --- writing ------------------------------------------------------------------------------

    async def create(self, path: str, value: T) -> Stat:
        """Write a document where there is none.

        Raises:
            BadVersion: if there is one already.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
        """
        return await self.put(path, value, ABSENT)

    async def put(self, path: str, value: T, expected: Expected = ANY) -> Stat:
        """Write a document.

        Raises:
            BadVersion: if the node is not as expected.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
        """
        data = self._encode(value)
        try:
            with _request(self._pending, path) as pending:
                stat = await self._store.put(path, data, expected)
        except BaseException:
            self.invalidate(path)
            raise
        self.invalidate(path)
        if pending.shows_newest(stat):
            self._keep(path, value, stat, len(data))
        return stat

    async def delete(self, path: str, expected: Expected = ANY) -> None:
        """Remove a document.

        Raises:
            NotFound: if there is none.
            BadVersion: if its version is another.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
        """
        try:
            await self._store.delete(path, expected)
        finally:
            self.invalidate(path)

    async def read_modify_update(self, path: str, modify: Callable[[T], T]) -> T:
        """Change a document; `modify` may be called several times and must not wait.

        Raises:
            NotFound: if there is none.
            ConflictError: if others kept changing it for too long.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
        """

        def existing(value: T | None) -> T:
            if value is None:
                raise NotFound(f"no document at {path} to change")
            return modify(value)

        return await self.read_modify_update_or_create(path, existing)

    async def read_modify_update_or_create(self, path: str, modify: Callable[[T | None], T]) -> T:
        """Change a document, or make one: `modify` gets None if there is none.

        Raises:
            ConflictError: if others kept changing it for too long.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
        """
        backoff = Backoff(path, self._clock, self._entropy)
        while True:
            value, stat = await self.get_with_stat(path)
            changed = modify(value)
            try:
                await self.put(path, changed, ABSENT if stat is None else stat.version)
            except BadVersion:
                await backoff.wait()
            else:
                return changed

    # --- forgetting -----------------------------------------------------------------------------

    def invalidate(self, path: str) -> None:
        """Read a document and the lists it is in anew when next asked for."""
        self._values.drop(path)
        _overtake(self._pending, path)
        for parent in () if path == ROOT else (ROOT, *ancestors_of(path)):
            self._forget_children(parent)

    def invalidate_all(self) -> None:
        """Read everything anew when next asked for."""
        self._values.clear()
        self._children.clear()
        for path in self._pending:
            _overtake(self._pending, path)
        for path in self._pending_children:
            _overtake(self._pending_children, path)

    def _forget_children(self, parent: str) -> None:
        self._children.drop(parent)
        _overtake(self._pending_children, parent)

    def _changed(self, event: Event) -> None:
        if event.kind is EventKind.GAP:
            self.invalidate_all()
            return
        for pending in self._pending.get(event.path, ()):
            pending.told_to = event.revision
        entry = self._values.peek(event.path)
        if entry is not None and (entry.stat is None or entry.stat.revision < event.revision):
            self._values.drop(event.path)
        if event.kind is not EventKind.MODIFIED and event.path != ROOT:
            self._forget_children(parent_of(event.path))


@contextmanager
def _request(requests: _PendingByPath, path: str) -> Iterator[_Pending]:
    pending = _Pending()
    requests.setdefault(path, []).append(pending)
    try:
        yield pending
    finally:
        requests[path].remove(pending)
        if not requests[path]:
            del requests[path]


def _overtake(requests: _PendingByPath, path: str) -> None:
    for pending in requests.get(path, ()):
        pending.overtaken = True
