"""Messages that are to be delivered later: when they come, in which bounds, after what."""

import asyncio

import pytest
from wire_peer import TOPIC, Wire, memory_stores, running_broker

from anabranch.broker.delayed import DelayedEntries
from anabranch.broker.limits import DELAYED_TICK_MS
from anabranch.ids import Position
from anabranch.runtime.real import real_runtime
from anabranch.wire import (
    AckedId,
    BaseCommand,
    Message,
    MessageMetadata,
    SendReceipt,
    ack,
    build_entry,
    flow,
    payload_of,
    requests,
    send_frame,
)

SHARED, FAILOVER, KEY_SHARED = 1, 2, 3
CLOCK = real_runtime().clock


def places(*numbers: int) -> list[Position]:
    return [Position(1, number) for number in numbers]


@pytest.mark.goal("core.B7", part="exact within one tick", broken_by="delays_end_early")
def test_nothing_is_due_before_its_time_nor_a_tick_after_it() -> None:
    for offset in (0, 1, DELAYED_TICK_MS - 1):
        entries = DelayedEntries()
        deliver_at = 10 * DELAYED_TICK_MS + offset
        entries.add(Position(1, 0), deliver_at)
        assert entries.next_due_ms is not None
        assert deliver_at <= entries.next_due_ms < deliver_at + DELAYED_TICK_MS
        assert entries.due(deliver_at - 1) == []
        assert entries.due(entries.next_due_ms) == places(0)
        assert entries.next_due_ms is None


def test_what_is_due_comes_in_order_and_once() -> None:
    entries = DelayedEntries()
    for number, deliver_at in ((3, 100), (1, 200), (2, 100), (2, 100)):
        entries.add(Position(1, number), deliver_at)
    assert len(entries) == 3
    assert entries.due(200) == places(1, 2, 3)
    assert len(entries) == 0


@pytest.mark.goal("core.B7", part="bounded memory", broken_by="delays_are_remembered_without_end")
def test_only_so_many_are_remembered_and_the_rest_is_read_again() -> None:
    entries = DelayedEntries(entries_max=10)
    for number in range(100):
        entries.add(Position(1, number), 1000 * (100 - number))
        assert len(entries) <= 10
    assert entries.next_due_ms == 1000
    assert entries.to_read_again() is None
    assert entries.due(4_000) == places(96, 97, 98, 99)
    assert entries.to_read_again() is None
    assert entries.due(5_000) == places(95)
    assert entries.to_read_again() == Position(1, 0)
    assert entries.to_read_again() is None


def later(wire: Wire, number: int, deliver_at_ms: int | None, key: str | None = None) -> None:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=number,
        publish_time=1,
        deliver_at_time=deliver_at_ms,
        partition_key=key,
    )
    frame = send_frame(1, number, 1, build_entry(metadata, b"%d" % number))
    wire.session.data_received(b"".join(frame))


async def published(wire: Wire, number: int, delay_ms: int | None) -> Position:
    later(wire, number, None if delay_ms is None else CLOCK.wall_ms() + delay_ms)
    receipt = await wire.next()
    assert type(receipt) is SendReceipt, receipt
    return Position(receipt.ledger_id, receipt.entry_id)


async def numbers(wire: Wire, count: int) -> list[int]:
    messages = [await wire.next() for _ in range(count)]
    assert all(type(each) is Message for each in messages), messages
    return [int(bytes(payload_of(each.entry))) for each in messages]


@pytest.mark.goal("core.B7", part="exact within one tick", broken_by="delays_do_not_count")
@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_a_delayed_message_is_passed_by_the_others(sub_type: int) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=sub_type)
        await wire.producer()
        began = CLOCK.wall_ms()
        await published(wire, 0, 400)
        await published(wire, 1, 200)
        await published(wire, 2, None)
        wire.session.data_received(flow(1, 10))
        assert await numbers(wire, 3) == [2, 1, 0]
        assert CLOCK.wall_ms() >= began + 400
        await wire.quiet()


@pytest.mark.parametrize("sub_type", [0, FAILOVER])
async def test_where_one_gets_all_in_order_delays_do_not_count(sub_type: int) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.send(_subscribe(sub_type))
        await wire.next()
        if sub_type == FAILOVER:
            change = await wire.next()
            assert change.type == BaseCommand.ACTIVE_CONSUMER_CHANGE
        await wire.producer()
        await published(wire, 0, 3_600_000)
        await published(wire, 1, None)
        wire.session.data_received(flow(1, 10))
        assert await numbers(wire, 2) == [0, 1]


def _subscribe(sub_type: int) -> BaseCommand:
    return requests.subscribe(TOPIC, "s", sub_type, 1, 7)  # type: ignore[arg-type]


@pytest.mark.goal("core.B7", part="survives restart", broken_by="delays_do_not_count")
async def test_delays_outlive_the_broker() -> None:
    stores = await memory_stores()
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=SHARED)
        await wire.producer()
        due = CLOCK.wall_ms() + 700
        later(wire, 0, due)
        await wire.next()
        await published(wire, 1, None)
        wire.session.data_received(flow(1, 10))
        assert await numbers(wire, 1) == [1]
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=SHARED)
        wire.session.data_received(flow(1, 10))
        assert await numbers(wire, 2) == [1, 0]
        assert CLOCK.wall_ms() >= due
    await stores[0].close()


async def test_an_acknowledged_message_is_not_due() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=SHARED)
        await wire.producer()
        first = await published(wire, 0, 200)
        await published(wire, 1, 300)
        wire.session.data_received(flow(1, 10))
        wire.session.data_received(ack(1, 0, [AckedId(*first, None, None)]))
        assert await numbers(wire, 1) == [1]


async def test_more_than_can_be_remembered_all_come_at_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = DelayedEntries.__init__
    monkeypatch.setattr(DelayedEntries, "__init__", lambda self: entries(self, entries_max=4))
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=SHARED)
        await wire.producer()
        wire.session.data_received(flow(1, 1000))
        start = CLOCK.wall_ms() + 300
        for number in range(20):
            later(wire, number, start + 20 * (19 - number))
        assert all([type(await wire.next()) is SendReceipt for _ in range(20)])
        got = {}
        for _ in range(20):
            (number,) = await numbers(wire, 1)
            got[number] = CLOCK.wall_ms()
        assert sorted(got) == list(range(20)), "each once"
        assert all(when >= start + 20 * (19 - number) for number, when in got.items())
        await wire.quiet()


async def test_a_message_that_became_due_while_another_waited_comes_once() -> None:
    """Reading goes back to what found no permits; what was passed on the way is not read anew."""
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=SHARED)
        await wire.producer()
        batch = MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=3
        )
        wire.session.data_received(b"".join(send_frame(1, 0, 3, build_entry(batch, b"0"))))
        await wire.next()
        await published(wire, 1, None)
        await published(wire, 2, 150)
        wire.session.data_received(flow(1, 3))
        assert await numbers(wire, 1) == [0]
        await asyncio.sleep(0.4)
        wire.session.data_received(flow(1, 10))
        assert sorted(await numbers(wire, 2)) == [1, 2]
        await wire.quiet()


def test_what_was_forgotten_is_not_overtaken_by_what_is_due_later() -> None:
    entries = DelayedEntries(entries_max=4)
    for number in range(5):
        entries.add(Position(1, number), 1000 * (number + 1))
    seen = []
    for round_ in range(4):  # something is due, and something comes that is due much later
        seen += entries.due(1000 * (round_ + 1))
        entries.add(Position(1, 10 + round_), 1_000_000)
    assert seen == places(0, 1, 2, 3)
    assert entries.to_read_again() == Position(1, 4), "its time is next"
