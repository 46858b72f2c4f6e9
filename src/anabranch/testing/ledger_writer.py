"""A process that appends to a ledger store until it is killed, or until it takes no more.

`python -m anabranch.testing.ledger_writer FOLDER LEDGER_ID` prints a line for every answer: the
entry id and the error, `None` if the entry was acknowledged. Instead of the folder of an embedded
store, `bookkeeper:METADATA-URL` names bookies.
"""

import asyncio
import sys

from anabranch.ledgers.addresses import BOOKKEEPER
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.bookies.registered import registered

BURST = 20


def payload_of(entry_id: int) -> bytes:
    """What the process appends as that entry."""
    return b"%d" % entry_id * 100


async def _opened(place: str) -> LedgerStore:
    if not place.startswith(BOOKKEEPER):
        return await EmbeddedLedgerStore.open_folder(RealDisk(), place, segment_bytes=200_000)
    runtime, settings = real_runtime(), BookKeeperSettings()
    metadata = await open_store(place.removeprefix(BOOKKEEPER), runtime)
    store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
    await registered(store, settings.ensemble_size)
    return store


async def main(place: str, ledger_id: int) -> None:
    """Append as long as the ledger takes it."""
    writer = await (await _opened(place)).create(ledger_id)
    refused: list[Exception] = []

    def done(entry_id: int, error: Exception | None) -> None:
        print(entry_id, repr(error), flush=error is not None)
        if error is not None:
            refused.append(error)

    appended = 0
    while not refused:
        for _ in range(BURST):
            writer.append(payload_of(appended), done)
            appended += 1
        sys.stdout.flush()
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
