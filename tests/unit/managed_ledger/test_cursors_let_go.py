"""Cursors that were stopped by an error keep nothing: the ledger they were writing is closed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import OutcomeUnknown, StorageError
from anabranch.ids import Position
from anabranch.ledgers.store import LedgerState
from anabranch.managed_ledger import ManagedLedger

PATH = "/managed-ledgers/t/ns/persistent/topic/s"
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


@pytest.mark.broken_by("closed_cursors_keep_their_ledger")
@pytest.mark.parametrize("error", [OutcomeUnknown, StorageError])
async def test_cursor_that_could_not_be_stored_lets_go_of_its_ledger(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    error: type[StorageError],
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    position, _ = await append_all(ledger, 2)
    cursor.acknowledge_batch(position, [0b01])
    await cursor.flushed()  # parts of batches go to a ledger
    (written,) = (x for x in world.ledgers.ledgers.values() if "pulsar/cursor" in x.custom_metadata)
    real = world.metadata.put

    async def put(path: str, *rest: Any, **guarded: Any) -> Any:
        if path == PATH:
            raise error("nobody answers")
        return await real(path, *rest, **guarded)

    with monkeypatch.context() as patch:
        patch.setattr(world.metadata, "put", put)
        cursor.set_cursor_properties({"k": "w"})
        with pytest.raises(error, match="nobody answers"):
            await cursor.flushed()
        assert written.state is LedgerState.OPEN
        await ledger.close()
    assert written.state is LedgerState.CLOSED
    assert (await world.open()).cursors["s"].pending_bits(position) == (0b01,)
