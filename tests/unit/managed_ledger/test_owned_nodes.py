"""An owner of a node notices who else wrote to it, and does not take itself or a switch for one."""

import asyncio
from typing import Any

import pytest

from anabranch.errors import Fenced
from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.managed_ledger.owned_node import OwnedNode
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.staged_replacement import staged

PATH = "/managed-ledgers/public/default/persistent/orders"


async def owned(store: MetadataStore, value: bytes = b"first") -> OwnedNode:
    node = OwnedNode(store, PATH, ABSENT, DocumentCompression())
    await node.write(value)
    return node


async def is_owner(node: OwnedNode) -> bool:
    try:
        await node.check()
    except Fenced:
        return False
    return True


class SlowAnswers(PassThrough):
    """A store that has written long before it says so."""

    def __init__(self, behind: MetadataStore) -> None:
        super().__init__(behind)
        self.written, self.may_answer = asyncio.Event(), asyncio.Event()

    async def put(self, path: str, *rest: Any, **more: Any) -> Any:
        stat = await super().put(path, *rest, **more)
        self.written.set()
        await self.may_answer.wait()
        return stat


async def test_another_writer_is_noticed() -> None:
    store = MemoryStore(real_runtime().clock)
    node = await owned(store)
    await node.check()
    await store.put(PATH, b"first")
    with pytest.raises(Fenced, match="was written by another owner"):
        await node.check()
    await store.delete(PATH)
    with pytest.raises(Fenced, match="was deleted by another owner"):
        await node.check()
    await store.close()


async def test_a_write_of_its_own_that_is_under_way_is_not_anothers() -> None:
    store = MemoryStore(real_runtime().clock)
    slow = SlowAnswers(store)
    slow.may_answer.set()
    node = await owned(slow)
    slow.written.clear()
    slow.may_answer.clear()
    writing = asyncio.ensure_future(node.write(b"second"))
    await slow.written.wait()
    checking = asyncio.ensure_future(node.check())
    await asyncio.sleep(0.01)
    slow.may_answer.set()
    await asyncio.gather(writing, checking)
    found = await store.get(PATH)
    assert found is not None
    assert found.value == b"second"
    await store.close()


@pytest.mark.goal("454.A14", part="owners", broken_by="owner_compares_versions_of_two_stores")
async def test_an_owner_stays_one_when_the_store_is_replaced() -> None:
    async with staged("ash") as stage:
        await stage.have_a_tenant()
        store = stage.anybody.store
        node = await owned(store)
        await stage.switch()
        assert await is_owner(node)
        await node.write(b"second")
        await node.check()
        found = await store.get(PATH)
        assert found is not None
        assert found.value == b"second"


async def test_who_wrote_on_the_new_store_is_noticed_by_the_owner_from_before() -> None:
    async with staged("ash", "oak") as stage:
        await stage.have_a_tenant()
        node = await owned(stage.members["ash"].store)
        await stage.switch()
        await stage.members["oak"].store.put(PATH, b"first")
        with pytest.raises(Fenced, match="was written by another owner"):
            await node.check()
