"""Appending to a ledger for those who wait: one entry, durable when the call returns.

The data path does not wait and calls `LedgerWriter.append` itself.
"""

import asyncio

from anabranch.ledgers.store import LedgerWriter


async def append_durably(writer: LedgerWriter, payload: bytes) -> int:
    """Append an entry and return its id when it is durable.

    Raises:
        AnabranchError: whatever kept it from becoming so.
    """
    durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def done(entry_id: int, error: Exception | None) -> None:
        if durable.cancelled():
            return
        if error is None:
            durable.set_result(entry_id)
        else:
            durable.set_exception(error)

    writer.append(payload, done)
    return await durable
