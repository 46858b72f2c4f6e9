"""The shards as they are now, with all that knows them, and what replaces it when they change.

Sessions, offsets and keys under way belong to shards. When those are split, everything is opened
anew beside the old, in the same history and for the same listeners: a gap, and another session.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, NotFound, StoreFailed, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.address import OxiaAddress
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.occupancy import Occupancy
from anabranch.metadata.oxia.requests import parse
from anabranch.metadata.oxia.scanning import Scanner
from anabranch.metadata.oxia.sessions import SessionKeeper, identity_of, says_unknown_session
from anabranch.metadata.oxia.writing import Writer
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import SessionEvent
from anabranch.metadata.watching import EventHistory
from anabranch.runtime import Runtime
from anabranch.runtime.channels import CallFailed, Security
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

T = TypeVar("T")
_log = get_logger("oxia-shards")


@dataclass(frozen=True, slots=True)
class Opening:
    """How to reach a namespace."""

    runtime: Runtime
    address: OxiaAddress
    security: Security
    session_timeout_s: float


class Present:
    """One set of shards."""

    def __init__(
        self, client: OxiaClient, feed: Feed, sessions: SessionKeeper, runtime: Runtime
    ) -> None:
        """Use `open`."""
        self.client = client
        self.feed = feed
        self.sessions = sessions
        occupancy = Occupancy(client)
        self.writer = Writer(client, feed, sessions, occupancy, runtime.clock)
        self.scanner = Scanner(client, occupancy)

    @classmethod
    async def open(
        cls, opening: Opening, history: EventHistory | None, news: SessionNews | None
    ) -> "Present":
        """Connect, follow every shard and begin a session.

        Raises:
            AnabranchError: see `OxiaStore.open`.
        """
        runtime = opening.runtime
        client = await OxiaClient.open(runtime, opening.address, opening.security)
        try:
            sessions = SessionKeeper(runtime, client.links, opening.session_timeout_s, news)
            feed = Feed(client.links, client.tasks, history)
            await feed.open()
            await sessions.open(client.tasks)
        except BaseException:
            await client.close()
            raise
        return cls(client, feed, sessions, runtime)

    async def end_session(self, session: int) -> bool:
        """End a session on every shard that knows it; whether one did."""
        ended = False
        for link in self.client.links:
            for key in await link.keys_in(keys.SESSIONS, internal=True):
                answer = await link.get(pb.GetRequest(key=key, include_value=True))
                if parse(pb.SessionMetadata, answer.value).identity != identity_of(session):
                    continue
                request = pb.SessionRequest(shard=link.number, session_id=keys.session_of_key(key))
                try:
                    await link.ask("CloseSession", request, pb.SessionResponse)
                except CallFailed as error:
                    # Its client ends it everywhere once it is over on one shard, and may be first.
                    if not says_unknown_session(error):
                        raise Unreachable(f"session {session} was not ended: {error}") from None
                ended = True
        return ended

    async def close(self) -> None:
        """Finish writes under way, end the session, let go of every connection."""
        try:
            await asyncio.gather(*(link.close() for link in self.client.links))
            await self.sessions.close()
        finally:
            self.feed.close()
            for link in self.client.links:
                link.drop()
            await self.client.close()


class Shards:
    """The present set of shards, whichever that is."""

    def __init__(self, opening: Opening, present: Present) -> None:
        self._opening = opening
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._task_failed)
        self._settled = asyncio.Event()
        self._closed = False
        self.present = present
        self._settle(present)

    def _task_failed(self, name: str, failure: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{name} broke", "exception": failure})

    async def close(self) -> None:
        """See `Present.close`."""
        self._closed = True
        self._settled.set()
        try:
            await self._tasks.close()
        finally:
            await self.present.close()

    # --- asking -------------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        return self._settled.is_set() and not self._closed

    async def now(self) -> Present:
        """The shards of now; waits while they are being replaced.

        Raises:
            Unreachable: if that takes too long.
        """
        if not self._settled.is_set():
            try:
                async with asyncio.timeout(limits.OXIA_CALL_S_MAX):
                    await self._settled.wait()
            except TimeoutError:
                raise Unreachable(f"{self.present.client.failure}, who do not answer") from None
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")
        return self.present

    async def ask(self, ask: Callable[[Present], Awaitable[T]]) -> T:
        """Ask the present shards, and again if they were replaced before anything was sent."""
        while True:
            present = self.present if self._ready else await self.now()
            try:
                return await ask(present)
            except (StoreFailed, AlreadyClosed):
                if present.client.failure is None:
                    raise

    async def stream(self, begin: Callable[[Present], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Read from the present shards; `Unreachable` if they are replaced on the way."""
        present = await self.now()
        items = begin(present)
        try:
            async for item in items:
                yield item
        except (StoreFailed, AlreadyClosed):
            if present.client.failure is None:
                raise
            raise Unreachable(str(present.client.failure)) from None
        finally:
            await items.aclose()  # type: ignore[attr-defined]

    # --- replacing ----------------------------------------------------------------------------

    def _settle(self, present: Present) -> None:
        self.present = present
        self._settled.set()
        present.client.on_failure = self._resharded
        if present.client.failure is not None:
            self._resharded()

    def _resharded(self) -> None:
        self._settled.clear()
        self.present.sessions.give_up()
        self.present.feed.close(self.present.client.failure)
        if not self._closed:
            self._tasks.spawn("oxia-resharding", self._open_again(self.present))

    async def _open_again(self, old: Present) -> None:
        history, news = old.feed.history, old.sessions.news
        while True:
            try:
                present = await Present.open(self._opening, history, news)
                break
            except AnabranchError as error:
                _log.warning("oxia_not_open_again", reason=str(error))
                await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MAX)
        self._settle(present)
        news.publish(SessionEvent.SESSION_REESTABLISHED)
        try:
            # Shards that came of a split have the sessions of the one before.
            with suppress(Unreachable, StoreFailed, NotFound):
                await present.end_session(old.sessions.number)
        finally:
            await old.client.close()
