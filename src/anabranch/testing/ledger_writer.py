"""A process that appends to an embedded ledger store until it is killed.

`python -m anabranch.testing.ledger_writer FOLDER LEDGER_ID` prints a line for every answer: the
entry id and the error, `None` if the entry was acknowledged.
"""

import asyncio
import sys

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real_disk import RealDisk

BURST = 20


def payload_of(entry_id: int) -> bytes:
    """What the process appends as that entry."""
    return b"%d" % entry_id * 100


async def main(folder: str, ledger_id: int) -> None:
    """Append for ever."""
    store = await EmbeddedLedgerStore.open_folder(RealDisk(), folder, segment_bytes=200_000)
    writer = await store.create(ledger_id)
    appended = 0
    while True:
        for _ in range(BURST):
            writer.append(payload_of(appended), print)
            appended += 1
        sys.stdout.flush()
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
