"""Ledger ids rise over processes and restarts, and are never handed out twice."""

import asyncio
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import FormatError

PATH = "/anabranch/ledger-ids"
World = Any


@pytest.mark.goal("core.L13", part="one authority", broken_by="ids_start_anew")
async def test_ids_are_unique_over_processes_and_rise_in_each(world: World) -> None:
    brokers = [world.broker() for _ in range(4)]

    async def draw(broker: Any) -> list[int]:
        return [await broker.ids.next() for _ in range(250)]

    drawn = await asyncio.gather(*(draw(broker) for broker in brokers))
    for ids in drawn:
        assert ids == sorted(ids)
    assert len({i for ids in drawn for i in ids}) == 1000
    highest = max(i for ids in drawn for i in ids)
    assert await world.broker().ids.next() > highest, "after a restart"


@pytest.mark.goal("core.L13", part="chain", broken_by="reserved_ids_are_used_up")
async def test_a_topic_goes_to_and_fro_between_processes_that_reserved_ids(world: World) -> None:
    brokers = [world.broker() for _ in range(3)]
    for broker in brokers:
        await broker.ids.next()
    newest = -1
    for broker in [*brokers, *reversed(brokers), *brokers]:
        topic = await broker.open("t/ns/persistent/topic")
        if topic.ledgers[-1].ledger_id <= newest:
            await topic.close()
            topic = await broker.open("t/ns/persistent/topic")
        assert topic.ledgers[-1].ledger_id > newest
        newest = topic.ledgers[-1].ledger_id


async def test_most_ids_need_no_metadata_write(world: World) -> None:
    broker = world.broker()
    await broker.ids.next()
    before = await world.metadata.revision()
    for _ in range(limits.LEDGER_IDS_RESERVED - 1):
        await broker.ids.next()
    assert await world.metadata.revision() == before
    await broker.ids.next()
    assert await world.metadata.revision() != before


async def test_concurrent_draws_of_one_process_take_one_block(world: World) -> None:
    broker = world.broker()
    drawn = await asyncio.gather(*(broker.ids.next() for _ in range(50)))
    assert sorted(drawn) == list(range(1, 51))


async def test_floor_counts_for_every_process(world: World) -> None:
    broker = world.broker()
    await broker.ids.next()
    await broker.ids.raise_floor(5000)
    assert await broker.ids.next() == 5000
    await broker.ids.raise_floor(10)
    assert await broker.ids.next() > 5000, "a floor below changes nothing"
    assert await world.broker().ids.next() > 5000


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"\x00", "not JSON"),
        (b"[]", "not a document of format"),
        (b'{"format": "other", "version": 1, "next": 1}', "not a document of format"),
        (b'{"format": "anabranch.ledger-ids", "version": 2, "next": 1}', "has version 2"),
        (b'{"format": "anabranch.ledger-ids", "version": 1, "next": -1}', "no usable counter"),
        (b'{"format": "anabranch.ledger-ids", "version": 1}', "no usable counter"),
    ],
)
async def test_unknown_counter_is_refused_and_kept(world: World, value: bytes, named: str) -> None:
    await world.metadata.put(PATH, value)
    with pytest.raises(FormatError, match=named):
        await world.broker().ids.next()
    assert (await world.metadata.get(PATH)).value == value
