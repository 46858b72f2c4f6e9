"""The ways from each broker of a drill to its stores, which can be cut for one broker alone.

Relays run on a loop of their own thread: whoever cuts and mends them may be busy.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from anabranch.testing.redirected import redirect_command
from anabranch.testing.relay import Relay


class Cut(StrEnum):
    """What a broker does not reach any more."""

    METADATA = "metadata"
    BOOKIES = "bookies"
    STORES = "stores"
    """Neither of them; its clients still reach it."""

    @property
    def ends_ownership(self) -> bool:
        """Whether a broker loses its session by it."""
        return self is not Cut.BOOKIES


@dataclass(frozen=True, slots=True)
class BrokerLinks:
    """Those of one broker."""

    metadata_url: str
    """Of its own relay."""
    _loop: asyncio.AbstractEventLoop
    _metadata: Relay
    _bookies: dict[int, Relay]

    def arguments(self, command: Sequence[str]) -> tuple[str, ...]:
        """Module and arguments that start an `anabranch` command behind the relays."""
        ports = {port: relay.port for port, relay in self._bookies.items()}
        return "anabranch.testing.redirected", *redirect_command(ports, command)

    def cut(self, what: Cut, *, silently: bool) -> None:
        """Break the ways, or let nothing come through although they look whole."""
        for relay in self._relays(what):
            self._loop.call_soon_threadsafe(relay.hold if silently else relay.refuse)

    def hold_answers_of_bookies(self) -> None:
        """From now on bookies store what the broker sends, and it does not hear of it."""
        for relay in self._relays(Cut.BOOKIES):
            self._loop.call_soon_threadsafe(relay.hold_answers)

    def mend(self) -> None:
        """Let everything through, also what was held."""
        for relay in self._relays(Cut.STORES):
            self._loop.call_soon_threadsafe(relay.accept)

    def _relays(self, what: Cut) -> list[Relay]:
        metadata = [] if what is Cut.BOOKIES else [self._metadata]
        return [*metadata, *(() if what is Cut.METADATA else self._bookies.values())]


@contextmanager
def broker_links(
    brokers: int, metadata_url: str, metadata_port: int, bookie_ports: Sequence[int]
) -> Iterator[list[BrokerLinks]]:
    """Relays to one metadata server and some bookies for each of so many brokers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="relays", daemon=True)
    thread.start()
    relays: list[Relay] = []

    async def relay_of(port: int) -> Relay:
        relay = Relay(port)
        await relay.start()
        relays.append(relay)
        return relay

    async def links_of_one() -> BrokerLinks:
        metadata = await relay_of(metadata_port)
        url = metadata_url.replace(f":{metadata_port}", f":{metadata.port}")
        bookies = {port: await relay_of(port) for port in bookie_ports}
        return BrokerLinks(url, loop, metadata, bookies)

    async def links() -> list[BrokerLinks]:
        return [await links_of_one() for _ in range(brokers)]

    async def close() -> None:
        for relay in relays:
            await relay.close()

    try:
        made: Future[list[BrokerLinks]] = asyncio.run_coroutine_threadsafe(links(), loop)
        yield made.result()
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
