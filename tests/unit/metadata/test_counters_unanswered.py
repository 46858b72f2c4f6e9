"""Counters whose writes are not answered, and documents that are none."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

import pytest

from anabranch import limits
from anabranch.errors import ConflictError, FormatError, InputError, OutcomeUnknown, Unreachable
from anabranch.metadata.counters import BlockCounter, SequentialCounter
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.unanswered import Lose, UnansweredStore

FORMAT = "anabranch.test-ids"


@pytest.fixture
async def base() -> AsyncIterator[MemoryStore]:
    base = MemoryStore(real_runtime().clock)
    yield base
    await base.close()


@pytest.fixture
def store(base: MemoryStore) -> UnansweredStore:
    return UnansweredStore(base)


def blocks(store: object, block: int = 5) -> BlockCounter:
    return BlockCounter(
        cast("MetadataStore", store), real_runtime(), "/ids", document_format=FORMAT, block=block
    )


@pytest.mark.goal("core.M4", part="counters", broken_by="unknown_block_is_used")
@pytest.mark.parametrize("loss", [Lose.REQUEST, Lose.ANSWER])
async def test_a_block_whose_fate_is_unknown_is_never_used_twice(
    store: UnansweredStore, base: MemoryStore, loss: Lose
) -> None:
    counter, other = blocks(store), blocks(base)
    store.lose("put", loss)
    numbers = [await counter.next() for _ in range(7)]
    numbers += [await other.next() for _ in range(7)]
    numbers += [await counter.next() for _ in range(7)]
    assert len(set(numbers)) == len(numbers)
    if loss is Lose.ANSWER:
        assert not set(numbers) & set(range(5)), "the first block may be anybody's"


async def test_a_ticket_whose_fate_is_unknown_is_skipped(
    store: UnansweredStore, base: MemoryStore
) -> None:
    counter = SequentialCounter(cast("MetadataStore", store), "/tickets")
    first = await counter.next()
    store.lose("put", Lose.ANSWER)
    with pytest.raises(OutcomeUnknown):
        await counter.next()
    store.lose("delete", Lose.REQUEST)
    assert await counter.next() == first + 2
    await base.end_session(base.session)
    assert await base.children("/tickets") == [], "what was left went with the session"


async def test_who_cannot_ask_gets_no_number(store: UnansweredStore) -> None:
    counter = blocks(store)
    store.lose("get", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await counter.next()
    assert await counter.next() == 0


async def test_callers_share_one_reservation(store: UnansweredStore) -> None:
    counter = blocks(store)
    numbers = await asyncio.gather(*(counter.next() for _ in range(5)))
    assert sorted(numbers) == list(range(5))
    assert store.calls == ["get", "put"]


async def test_who_gives_up_leaves_the_others_their_turn(store: UnansweredStore) -> None:
    counter = blocks(store)
    gate = store.hold("put")
    loop = asyncio.get_running_loop()
    first, second = (loop.create_task(counter.next()) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    assert await second == 5, "the block of who gave up is nobody's"


async def test_a_floor_holds_for_everybody(base: MemoryStore) -> None:
    counter = blocks(base)
    assert await counter.next() == 0
    await counter.raise_floor(1000)
    assert await counter.next() == 1000
    assert await blocks(base).next() == 1005
    await counter.raise_floor(10)
    assert await counter.next() == 1010, "never back"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"7", "not a document of format"),
        (b"{", "/ids is not JSON"),
        (b'{"format": "another", "version": 1, "next": 3}', "not a document of format"),
        (b'{"format": "anabranch.test-ids", "version": 2, "next": 3}', "has version 2"),
        (b'{"format": "anabranch.test-ids", "version": 1, "next": -3}', "no usable counter: -3"),
        (b'{"format": "anabranch.test-ids", "version": 1, "next": true}', "no usable counter"),
    ],
)
async def test_documents_that_are_none_are_refused(
    base: MemoryStore, value: bytes, complaint: str
) -> None:
    await base.put("/ids", value)
    with pytest.raises(FormatError, match=complaint):
        await blocks(base).next()
    node = await base.get("/ids")
    assert node is not None
    assert node.value == value


async def test_numbers_end_somewhere(base: MemoryStore) -> None:
    last = {"format": FORMAT, "version": 1, "next": limits.COUNTER_VALUE_MAX - 2}
    await base.put("/ids", json.dumps(last).encode())
    with pytest.raises(ConflictError, match="no numbers are left"):
        await blocks(base).next()


@pytest.mark.parametrize("block", [0, -1, limits.COUNTER_BLOCK_MAX + 1])
def test_blocks_have_a_size(block: int) -> None:
    with pytest.raises(InputError, match="a block has 1 to"):
        blocks(None, block)
