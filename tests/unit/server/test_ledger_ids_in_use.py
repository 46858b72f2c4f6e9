"""Ledger ids go on without repeats when the metadata store becomes one of another kind."""

from collections.abc import AsyncIterator

import pytest

from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.metadata.counters import Numbering
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import real_runtime
from anabranch.server.ledger_ids_in_use import LedgerIdsInUse

ZOOKEEPER, OXIA = "zk:one:2181/pulsar", "oxia://one:6648/pulsar"


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(real_runtime().clock)
    yield store
    await store.close()


async def test_numbers_are_drawn_as_the_store_in_use_wants_it(store: MemoryStore) -> None:
    url = OXIA
    ids = LedgerIdsInUse(store, real_runtime(), lambda: url, LedgerPaths())
    by_children = SharedLedgerIds(store, real_runtime(), numbering=Numbering.BY_CHILDREN)
    by_changes = SharedLedgerIds(store, real_runtime(), numbering=Numbering.BY_CHANGES)
    for _ in range(3):
        assert await ids.next() < await by_changes.next()
    assert await by_children.next() == 0
    url = ZOOKEEPER
    assert await ids.next() == 1
    assert await ids.issued_below() == 2
    await ids.raise_floor(5)
    assert await by_children.next() >= 5


async def test_number_that_was_drawn_while_the_store_changed_is_not_used(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = OXIA
    ids = LedgerIdsInUse(store, real_runtime(), lambda: url, LedgerPaths())
    by_children = SharedLedgerIds(store, real_runtime(), numbering=Numbering.BY_CHILDREN)
    given = [await by_children.next() for _ in range(9)]
    plain = SharedLedgerIds.next

    async def switched_meanwhile(self: SharedLedgerIds) -> int:
        nonlocal url
        url = ZOOKEEPER
        return await plain(self)

    monkeypatch.setattr(SharedLedgerIds, "next", switched_meanwhile)
    assert await ids.next() not in given
