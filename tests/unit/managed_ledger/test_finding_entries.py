"""Finding an entry by what it says, while the log grows and is trimmed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.ids import Position
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, newest_matching
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain, LedgerSpan
from anabranch.runtime.network import Buffer

SMALL = ManagedLedgerConfig(ledger_entries_max=10)
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


def number_of(entry: Buffer) -> int:
    return int(bytes(entry).removeprefix(b"entry-"))


async def test_every_place_is_found_with_few_reads(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_entries_max=10, entry_cache_bytes_max=0))
    await ledger.open_cursor("keep", initial="earliest")
    assert await newest_matching(ledger, ledger.last_confirmed, lambda _: True) is None
    positions = await append_all(ledger, 45)
    for wanted in range(46):
        world.ledgers.reads = 0
        found = await newest_matching(
            ledger, ledger.last_confirmed, lambda entry, n=wanted: number_of(entry) < n
        )
        assert found == (positions[wanted - 1] if wanted else None)
        assert world.ledgers.reads <= 6
    assert await newest_matching(ledger, positions[30], lambda _: True) == positions[30]


async def test_what_comes_meanwhile_does_not_count(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 8)
    read = ledger.read

    async def growing(*arguments: Any) -> Any:
        await append_all(ledger, 3)
        return await read(*arguments)

    ledger.read = growing
    assert await newest_matching(ledger, positions[7], lambda _: True) == positions[7]


@pytest.mark.parametrize("wanted", [0, 5, 15, 22, 25])
async def test_trimming_meanwhile(world: World, append_all: AppendAll, wanted: int) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 25)
    read = ledger.read
    reads = 0

    async def trimming(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            cursor.acknowledge_cumulative(positions[22])
            await ledger.trim()
        return await read(*arguments)

    ledger.read = trimming
    found = await newest_matching(
        ledger, ledger.last_confirmed, lambda entry: number_of(entry) < wanted
    )
    assert ledger.first_position() == positions[20]
    following = ledger.first_position() if found is None else ledger.next_position(found)
    if wanted < 25:
        assert following == positions[max(wanted, 20)]
    else:
        assert found == positions[24]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_steps_through_a_chain(sizes: list[int], data: st.DataObject) -> None:
    spans = [LedgerSpan(3 * n, entries=size, closed_ms=1) for n, size in enumerate(sizes)]
    chain = Chain(spans, 3 * len(sizes))
    position, walked = Position(-1, -1), []
    while chain.rank(position) < chain.total:
        position = chain.next_position(position)
        walked.append(position)
    for at in range(len(walked)):
        for count in range(1, len(walked) - at):
            assert chain.position_after(walked[at], count) == walked[at + count]
    if walked:
        count = data.draw(st.integers(1, len(walked)))
        assert chain.position_after(Position(-1, -1), count) == walked[count - 1]


def test_a_reset_into_a_batch() -> None:
    chain = Chain([LedgerSpan(1, entries=10, closed_ms=1)], 2)
    state = Acknowledged(chain, Position(1, 8))
    state.reset(Position(1, 4), [0b1100])
    state.validate()
    assert (state.mark_delete, state.backlog()) == (Position(1, 3), 6)
    assert state.pending_bits(Position(1, 4)) == (0b1100,)
    state.reset(Position(1, 5), [0])
    state.validate()
    assert state.mark_delete == Position(1, 5), "nothing of that batch is left"
    state.reset(Position(7, 0), [1])
    state.validate()
    assert (state.mark_delete, state.backlog()) == (Position(1, 9), 0)
    with pytest.raises(InputError, match="ack set"):
        state.reset(Position(1, 2), [1] * 100_000)
    assert state.mark_delete == Position(1, 9)
