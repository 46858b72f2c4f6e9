"""Appending to the log of a topic and reading it, for tests that wait for each result."""

import asyncio

from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import ManagedLedger

_ENTRIES_AT_A_TIME = 30
_READ_BYTES = 1 << 20


async def append(topic: ManagedLedger, payload: bytes) -> Position:
    """Append an entry; its position once it is durable."""
    future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        if position is None:
            assert error is not None, "an append has a position or an error"
            future.set_exception(error)
        else:
            future.set_result(position)

    topic.append(payload, done)
    return await future


async def payloads(topic: ManagedLedger) -> list[bytes]:
    """All entries from the oldest on."""
    found: list[bytes] = []
    start = EARLIEST
    while entries := await topic.read(start, _ENTRIES_AT_A_TIME, _READ_BYTES):
        found += [bytes(entry.payload) for entry in entries]
        start = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
    return found
