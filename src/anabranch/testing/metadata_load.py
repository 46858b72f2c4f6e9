"""A client process of the metadata drill: writes, and notes every answer it got.

    python -m anabranch.testing.metadata_load URL NAME FILE

Each line of the file is a JSON document: `{"a": [path, number]}` for a number that was
acknowledged, `{"q": path}` for a sequential node, `{"wrong": text}` for an answer that should not
have come, `{"lost": true}` when its session ended, `{"end": true}` after a clean stop, asked for
with SIGTERM.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

from anabranch.errors import (
    AnabranchError,
    BadVersion,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, Expected, MetadataStore, SessionEvent
from anabranch.runtime.real import real_runtime

WRITERS: Final = 4
SESSION_TIMEOUT_S: Final = 10.0
_REST_S: Final = 0.002


class Load:
    """What one process does to the store."""

    def __init__(self, store: MetadataStore, name: str, history: IO[str]) -> None:
        self._store = store
        self._name = name
        self._history = history
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Finish what is under way, then end."""
        self._stop.set()

    def note(self, **fact: Any) -> None:
        """Write a line that outlives this process."""
        self._history.write(json.dumps(fact) + "\n")
        self._history.flush()

    async def run(self) -> None:
        """Work until stopped."""
        sessions = self._store.session_events()
        await self._show_life()
        showing = asyncio.create_task(self._show_life_in_every_session(sessions))
        await asyncio.gather(*(self._count(i) for i in range(WRITERS)), self._draw())
        showing.cancel()
        await self._store.close()
        self.note(end=True)

    async def _show_life_in_every_session(self, sessions: AsyncIterator[SessionEvent]) -> None:
        async for event in sessions:
            if event is SessionEvent.SESSION_LOST:
                self.note(lost=True)
            elif event is SessionEvent.SESSION_REESTABLISHED:
                await self._show_life()

    async def _show_life(self) -> None:
        while True:
            if await self._is_shown():
                return
            await asyncio.sleep(_REST_S)

    async def _is_shown(self) -> bool:
        path = f"/e/{self._name}"
        try:
            if (node := await self._store.get(path)) is None:
                await self._store.put(path, b"", ABSENT, ephemeral=True)
                return True
        except (BadVersion, Unreachable, OutcomeUnknown, SessionExpired):
            return False
        return node.stat.created_by_self  # else of the session before, which is about to end

    async def _count(self, number: int) -> None:
        path = f"/w/{self._name}/{number}"
        value = 0
        version: Expected = ABSENT
        while not self._stop.is_set():
            try:
                stat = await self._store.put(path, b"%d" % (value + 1), version)
            except Unreachable:
                continue
            except OutcomeUnknown:
                found, version = await self._read_back(path)
                if found not in (value, value + 1):
                    self.note(wrong=f"{path} is {found} after {value}")
                value = found
            except BadVersion as error:
                self.note(wrong=f"{path}: {error}")
                return
            else:
                value, version = value + 1, stat.version
            self.note(a=[path, value])
            await asyncio.sleep(_REST_S)

    async def _read_back(self, path: str) -> tuple[int, Expected]:
        while True:
            try:
                node = await self._store.get(path)
            except Unreachable:
                continue
            return (int(node.value), node.stat.version) if node is not None else (0, ABSENT)

    async def _draw(self) -> None:
        while not self._stop.is_set():
            try:
                stat = await self._store.put("/q/n-", self._name.encode(), sequential=True)
            except (Unreachable, OutcomeUnknown):
                continue
            self.note(q=stat.path)
            await asyncio.sleep(5 * _REST_S)


async def main(url: str, name: str, file: Path) -> None:
    """Connect and work."""
    store = await open_store(url, real_runtime(), session_timeout_s=SESSION_TIMEOUT_S)
    with file.open("w") as history:
        load = Load(store, name, history)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stop)
        try:
            await load.run()
        except AnabranchError as error:
            load.note(wrong=f"{name} ended with {type(error).__name__}: {error}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
