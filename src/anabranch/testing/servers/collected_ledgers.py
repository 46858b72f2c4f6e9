"""Garbage for bookies: topics made and deleted all the time, and when bookies lost their ledgers.

The bookies are asked themselves, past all metadata: what they say shows what they collected.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.client import Client
from anabranch.client.admin import AdminClient
from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.link import BookieLinks
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

COLLECT_OFTEN: Final = {"gcWaitTime": "1000"}
"""A setting of bookies: they look every second for what nothing names any more."""
_LOOK_S: Final = 0.1
_WAIT_S_MAX: Final = 60.0
_AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Collected:
    """A ledger that every bookie had, and that every bookie says it does not have."""

    ledger_id: int
    deleted_ms: int
    """When the topic was gone, by the wall clock."""
    gone_ms: int


class GarbageLoad:
    """One topic after the other is filled and deleted; it goes on until it is told to stop."""

    def __init__(self, service_url: str, web_url: str, bookie_ports: Sequence[int]) -> None:
        self.collected: list[Collected] = []
        self.again: list[str] = []
        """Why a topic was given up and another one made."""
        self._service_url = service_url
        self._web_url = web_url
        self._bookies = [f"127.0.0.1:{port}" for port in bookie_ports]
        self._over = asyncio.Event()
        self._tasks = Tasks(self._failed)
        self._links = BookieLinks(real_runtime(), _resolve, BookKeeperSettings(), self._tasks)
        self._work: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Make and delete from now on."""
        self._work = asyncio.ensure_future(self._go_on())

    async def stop(self) -> None:
        """Finish the topic that is under way; raises what went wrong."""
        self._over.set()
        try:
            if self._work is not None:
                await self._work
        finally:
            self._links.close()
            await self._tasks.close()

    async def more(self) -> None:
        """Wait until one is collected that was deleted from now on."""
        from_ms = _now_ms()
        async with asyncio.timeout(_WAIT_S_MAX):
            while not any(each.deleted_ms >= from_ms for each in self.collected):
                if self._work is not None and self._work.done():
                    self._work.result()
                await asyncio.sleep(_LOOK_S)

    async def _go_on(self) -> None:
        made = 0
        async with AdminClient(self._web_url) as admin, Client(self._service_url) as client:
            while not self._over.is_set():
                topic = f"persistent://public/default/garbage-{made}"
                made += 1
                try:
                    ledgers = await _made_and_deleted(admin, client, topic, self._all_have)
                except AnabranchError as error:
                    self.again.append(f"{topic}: {error}")
                    await asyncio.sleep(_AGAIN_S)
                    continue
                deleted_ms = _now_ms()
                async with asyncio.timeout(_WAIT_S_MAX):
                    for ledger_id in ledgers:
                        await self._all_say(Status.NO_LEDGER, ledger_id)
                        self.collected.append(Collected(ledger_id, deleted_ms, _now_ms()))

    async def _all_have(self, ledgers: Sequence[int]) -> None:
        async with asyncio.timeout(_WAIT_S_MAX):
            for ledger_id in ledgers:
                await self._all_say(Status.OK, ledger_id)

    async def _all_say(self, wanted: Status, ledger_id: int) -> None:
        """Ask for the first entry until every bookie answers so."""
        for bookie in self._bookies:
            while True:
                status, _ = await self._links.link(bookie).call(frames.read(ledger_id, 0))
                if status is wanted:
                    break
                await asyncio.sleep(_LOOK_S)

    def _failed(self, name: str, failure: BaseException) -> None:
        self.again.append(f"{name}: {failure}")


async def _made_and_deleted(
    admin: AdminClient,
    client: Client,
    topic: str,
    check: Callable[[Sequence[int]], Awaitable[None]],
) -> list[int]:
    """Fill a topic and delete it; returns its ledgers, which were checked to be there."""
    producer = await client.producer(topic)
    await producer.send(b"garbage")
    await producer.close()
    ledgers = [each["ledgerId"] for each in (await admin.topics.internal_stats(topic))["ledgers"]]
    await check(ledgers)
    await admin.topics.delete(topic, force=True)
    return ledgers


async def _resolve(bookie: str) -> tuple[str, int]:
    host, _, port = bookie.rpartition(":")
    return host, int(port)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
