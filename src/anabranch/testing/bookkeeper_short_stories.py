"""Short stories of a few model bookies and one client in a simulated world, told step by step.

For what must happen in one order; what may happen in any is the scenario's.
"""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerWriter
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.bookies.server import Bookie, BookieServer
from anabranch.testing.scenarios.served_metadata import SERVER, URL, serve
from anabranch.testing.simulation import World

Story = Callable[["Bench", BookKeeperLedgerStore], Awaitable[None]]
"""Told with a store that is open; what else it opens it closes."""


class Bench:
    """Some bookies and a client."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.metadata: MetadataStore
        self.runtime: Runtime
        self.bookies = [Bookie(f"bookie-{number}") for number in range(count)]
        for bookie in self.bookies:
            world.process(bookie.name).start(
                lambda runtime, bookie=bookie: BookieServer(  # type: ignore[misc]
                    runtime, bookie, URL, 6.0
                ).run(),
                tolerates=(AnabranchError,),
            )

    def having(self, ledger_id: int) -> list[Bookie]:
        """The bookies that have something of a ledger."""
        servers = [(bookie, bookie.server) for bookie in self.bookies]
        return [
            bookie for bookie, server in servers if server and ledger_id in server.shelves.ledgers
        ]

    def has(self, bookie: Bookie, ledger_id: int, entry_id: int) -> bool:
        """Whether a bookie has an entry."""
        if bookie.server is None:
            return False
        shelf = bookie.server.shelves.ledgers.get(ledger_id)
        return shelf is not None and entry_id in shelf.entries

    async def until_has(self, bookie: Bookie, ledger_id: int, entry_id: int) -> None:
        """Return once a bookie has an entry."""
        while True:
            if self.has(bookie, ledger_id, entry_id):
                return
            await asyncio.sleep(0.1)


def play(settings: BookKeeperSettings, bookies: int, story: Story) -> None:
    """Tell a story with so many bookies.

    A world in which time stands still while something runs on and on ends with an error by itself.
    """

    async def main(world: World) -> None:
        world.process(SERVER).start(serve)
        bench = Bench(world, bookies)

        async def client(runtime: Runtime) -> None:
            metadata = bench.metadata = await ServedStore.open(runtime, URL)
            bench.runtime = runtime
            while True:
                if len(await metadata.children("/ledgers/available")) == bookies:
                    break
                await asyncio.sleep(0.1)
            store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
            await story(bench, store)
            await store.close()

        await world.process("client").run(client)

    World(1).run(main, time_limit_s=300.0)


async def append(writer: LedgerWriter, *payloads: bytes) -> None:
    """Append entries at once and return when all are durable."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    last = -1

    def done(entry_id: int, error: Exception | None) -> None:
        assert error is None
        if entry_id == last:
            ended.set_result(None)

    for payload in payloads:
        last = writer.append(payload, done)
    await ended
