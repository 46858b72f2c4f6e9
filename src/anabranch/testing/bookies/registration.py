"""How a model bookie shows itself: an ephemeral node while it lives, elsewhere while it is full."""

import asyncio
from typing import Final

from anabranch.errors import (
    BadVersion,
    NotFound,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, MetadataStore, SessionEvent
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

WRITABLE: Final = "/ledgers/available"
READ_ONLY: Final = f"{WRITABLE}/readonly"
_RETRY_S: Final = 0.25


class Registration:
    """Keeps a bookie's node where it belongs, through any number of sessions."""

    def __init__(self, runtime: Runtime, tasks: Tasks, url: str, timeout_s: float) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._url = url
        self._timeout_s = timeout_s
        self._wake = asyncio.Event()
        self.read_only = False

    def changed(self, *, read_only: bool) -> None:
        """Show it, as soon as the store can be reached."""
        self.read_only = read_only
        self._wake.set()

    async def keep(self, bookie_id: str) -> None:
        """Do it until the process ends."""
        store = await self._connect()
        self._tasks.spawn(f"session of {bookie_id}", self._listen(store))
        while True:
            self._wake.clear()
            wanted, other = WRITABLE, READ_ONLY
            if self.read_only:
                wanted, other = other, wanted
            try:
                await self._show(store, f"{wanted}/{bookie_id}")
                await self._hide(store, f"{other}/{bookie_id}")
            except (BadVersion, OutcomeUnknown, SessionExpired, Unreachable):
                # An earlier life's node is in the way until its session ends, or nobody answers.
                await asyncio.sleep(_RETRY_S)
            else:
                await self._wake.wait()

    async def _connect(self) -> MetadataStore:
        while True:
            try:
                return await open_store(self._url, self._runtime, session_timeout_s=self._timeout_s)
            except Unreachable:
                await asyncio.sleep(_RETRY_S)

    async def _listen(self, store: MetadataStore) -> None:
        async for event in store.session_events():
            if event is SessionEvent.SESSION_REESTABLISHED:
                self._wake.set()

    async def _show(self, store: MetadataStore, path: str) -> None:
        node = await store.get(path)
        if node is None or not node.stat.created_by_self:
            await store.put(path, b"", ABSENT, ephemeral=True)

    async def _hide(self, store: MetadataStore, path: str) -> None:
        node = await store.get(path)
        if node is not None and node.stat.created_by_self:
            try:
                await store.delete(path, node.stat.version)
            except NotFound:
                return
