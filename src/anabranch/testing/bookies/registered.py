"""Waiting for bookies: they answer on their port before they are registered."""

import asyncio
from typing import Final

from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.testing.servers.limits import SERVER_POLL_INTERVAL_S, SERVER_READY_S_MAX

_TRIES: Final = int(SERVER_READY_S_MAX / SERVER_POLL_INTERVAL_S)


async def registered(store: BookKeeperLedgerStore, count: int) -> None:
    """Return once a store knows of so many bookies that take entries.

    Raises:
        TimeoutError: if it does not come to that.
    """
    for _ in range(_TRIES):
        if len(store.cluster.bookies.writable(with_quarantined=True)) >= count:
            return
        await asyncio.sleep(SERVER_POLL_INTERVAL_S)
    raise TimeoutError(f"{count} bookies have not registered")
