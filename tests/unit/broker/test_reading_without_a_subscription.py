"""Subscriptions that are not durable: where they begin, how they end, what they do not keep."""

import asyncio
import time
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, eventually, running_broker

from anabranch import limits
from anabranch.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.errors import StorageError
from anabranch.generated.pulsar_api_pb2 import CommandSubscribe
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.wire import (
    AckedId,
    BaseCommand,
    ServerError,
    ack,
    message_id,
    replies,
    requests,
)

LATEST = Position(2**63 - 1, 2**63 - 1)
LATEST_IN_48_BITS = Position(2**63 - 1, 2**48 - 1)


def topic_of(broker: Broker) -> Topic:
    (topic,) = broker.topics.all()
    return topic


async def reading(wire: Wire, start: Position | None, **options: int) -> None:
    place = None if start is None else message_id(*start)
    answer = await wire.subscribe(durable=False, start_message_id=place, **options)  # type: ignore[arg-type]
    assert answer.type == BaseCommand.SUCCESS, answer


def subscription(start: Position, name: str = "s") -> BaseCommand:
    return requests.subscribe(
        TOPIC,
        name,
        CommandSubscribe.Exclusive,
        1,
        5,
        durable=False,
        start_message_id=message_id(*start),
    )


@pytest.mark.parametrize("latest", [LATEST, LATEST_IN_48_BITS, None], ids=str)
async def test_latest_in_every_spelling(latest: Position | None) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.published(3)
        await reading(wire, latest)
        assert topic_of(broker).subscriptions["s"].cursor.backlog() == 0
        await wire.published(1)
        assert await wire.read(1) == [0]


async def test_initial_position_counts_where_no_message_is_named() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.published(3)
        await reading(wire, None, initial_position=CommandSubscribe.Earliest)
        assert await wire.read(3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("start", "expected"),
    [(EARLIEST, 0), (Position(0, -1), 0), (Position(10**9, 0), 5), (Position(-1, 77), 0)],
    ids=["earliest", "before everything", "after everything", "earliest with an entry"],
)
async def test_starts_that_name_no_entry(start: Position, expected: int) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.published(5)
        await reading(wire, start)
        assert topic_of(broker).subscriptions["s"].cursor.backlog() == 5 - expected


async def test_the_entry_of_the_start_is_delivered_whichever_its_batch_index() -> None:
    """The client passes over what it has read of a batch: it alone knows."""
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        positions = await wire.published(5)
        start = message_id(*positions[2], batch_index=7)
        await wire.subscribe(durable=False, start_message_id=start)
        assert await wire.read(3) == [2, 3, 4]


async def test_a_start_some_time_ago() -> None:
    now_ms = time.time_ns() // 1_000_000
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.published(4, times=[now_ms - s * 1000 for s in (400, 300, 200, 100)])
        await reading(wire, LATEST, start_rollback_s=250)
        assert await wire.read(2) == [2, 3]


@pytest.mark.goal("core.B5", part="non-durable", broken_by="reader_leaves_its_place")
@pytest.mark.parametrize("how", ["close", "unsubscribe", "lost connection"])
async def test_it_ends_with_its_last_consumer_and_leaves_nothing(how: str) -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        positions = await wire.published(5)
        await reading(other, positions[1])
        assert await other.read(2) == [1, 2]
        other.session.data_received(ack(1, 1, [AckedId(*positions[2], None, None)], 7))
        assert (await other.next()).ackResponse.request_id == 7
        topic = topic_of(broker)
        assert topic.subscriptions["s"].cursor.mark_delete == positions[2]
        if how == "close":
            assert (await other.ask(requests.close_consumer(1, 8))).type == BaseCommand.SUCCESS
        elif how == "unsubscribe":
            assert (await other.ask(requests.unsubscribe(1, 8))).type == BaseCommand.SUCCESS
        else:
            other.session.connection_lost(None)
        assert topic.subscriptions == {}
        assert topic.ledger.cursors == {}, "nothing was ever stored"
        await reading(wire, EARLIEST)
        assert await wire.read(5) == [0, 1, 2, 3, 4]


@pytest.mark.goal("core.B5", part="non-durable", broken_by="readers_hold_back_trimming")
async def test_it_does_not_hold_back_trimming_and_goes_on_with_what_is_left() -> None:
    async with running_broker(config=ManagedLedgerConfig(ledger_entries_max=10)) as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(9)
        await wire.producer()
        positions = await wire.published(25)
        assert (await wire.ask(requests.close_consumer(9, 1))).type == BaseCommand.SUCCESS
        await wire.ask(subscription(EARLIEST, "r"))
        assert await wire.read(2) == [0, 1]
        topic = topic_of(broker)
        cursor = topic.subscriptions["r"].cursor
        cursor.acknowledge([positions[5]])
        assert cursor.backlog() == 24
        topic.subscriptions["s"].cursor.acknowledge_cumulative(positions[24])
        await topic.ledger.trim()
        assert topic.ledger.first_position() == positions[20]
        assert cursor.backlog() == 5, "what is gone is no backlog"
        assert await wire.read(5) == [20, 21, 22, 23, 24]


async def test_a_name_is_durable_or_it_is_not() -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await reading(wire, EARLIEST)
        refused = await other.subscribe(sub_type=1)
        assert refused.error.error == ServerError.NotAllowedError
        assert refused.error.message == "NonDurable subscription with the same name already exists."
        await wire.ask(requests.close_consumer(1, 8))
        assert (await other.subscribe(sub_type=1)).type == BaseCommand.SUCCESS
        refused = await wire.subscribe(sub_type=1, durable=False)
        assert refused.error.error == ServerError.NotAllowedError
        assert refused.error.message == "Durable subscription with the same name already exists."


async def test_a_reader_that_takes_the_name_first_leaves_no_cursor_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        topic, gate = topic_of(broker), asyncio.Event()
        open_cursor = topic.ledger.open_cursor

        async def slow(*arguments: Any, **options: Any) -> Any:
            cursor = await open_cursor(*arguments, **options)
            await gate.wait()
            return cursor

        monkeypatch.setattr(topic.ledger, "open_cursor", slow)
        other.send(requests.subscribe(TOPIC, "s", CommandSubscribe.Exclusive, 1, 5))
        await other.quiet()
        await reading(wire, EARLIEST)
        gate.set()
        assert (await other.next()).error.error == ServerError.NotAllowedError
        assert topic.ledger.cursors == {}
        assert topic.subscriptions["s"].consumers


async def test_a_ghost_of_the_same_reader_does_not_keep_it_out() -> None:
    async with running_broker() as broker:
        ghost, wire = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        positions = await wire.published(3)
        await reading(ghost, EARLIEST)
        wire.send(subscription(positions[1]))
        assert (await ghost.next()).type == BaseCommand.PING
        ghost.session.connection_lost(None)
        assert (await wire.next()).success.request_id == 5
        assert await wire.read(2) == [1, 2], "it begins where it says, not where the ghost was"


async def test_a_second_exclusive_reader_of_a_name_is_refused() -> None:
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await reading(first, EARLIEST)
        second.send(subscription(EARLIEST))
        assert (await first.next()).type == BaseCommand.PING
        first.send(replies.pong())
        assert (await second.next()).error.error == ServerError.ConsumerBusy
        assert topic_of(broker).subscriptions["s"].consumers


async def test_a_compacted_copy_is_not_passed_over_silently() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        answer = await wire.subscribe(durable=False, read_compacted=True)
        assert answer.type == BaseCommand.SUCCESS, (
            "without a compacted copy the log is all there is"
        )
        await wire.ask(requests.close_consumer(1, 8))
        await topic_of(broker).ledger.open_cursor("__compaction")
        refused = await wire.subscribe(durable=False, read_compacted=True)
        assert refused.error.error == ServerError.NotAllowedError
        assert topic_of(broker).subscriptions == {}
        refused = await wire.subscribe(sub_type=1, read_compacted=True)
        assert "readCompacted only allowed on failover or exclusive" in refused.error.message


async def test_a_subscription_nobody_comes_back_to_after_a_seek_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RETURN_AFTER_SEEK_S_MAX", 0.5)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        positions = await wire.published(5)
        await reading(wire, EARLIEST)
        wire.send(requests.seek(1, 9, message_id(*positions[3])))
        assert (await wire.next()).close_consumer.consumer_id == 1
        assert (await wire.next()).success.request_id == 9
        topic = topic_of(broker)
        assert list(topic.subscriptions) == ["s"], "its reader is expected back"
        await reading(wire, EARLIEST)
        assert await wire.read(2) == [3, 4], "it goes on from where it was moved to"
        wire.send(requests.seek(1, 10, message_id(*positions[1])))
        await wire.next()
        await wire.next()
        await eventually(lambda: topic.subscriptions == {})


@pytest.mark.parametrize("found", [True, False])
async def test_a_reader_that_leaves_during_a_seek_by_time_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    gate = asyncio.Event()
    async with running_broker(config=ManagedLedgerConfig(entry_cache_bytes_max=0)) as broker:
        wire, reader = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        await wire.published(10, list(range(10)))
        topic = topic_of(broker)
        await reading(reader, EARLIEST)
        read = topic.ledger.read

        async def slow(*arguments: Any) -> Any:
            await gate.wait()
            if not found:
                raise StorageError("the disk cannot read")
            return await read(*arguments)

        monkeypatch.setattr(topic.ledger, "read", slow)
        reader.send(requests.seek_to_time(1, 9, 5))
        await reader.quiet()
        reader.close()
        await reader.quiet()
        gate.set()
        await reader.quiet()
        assert not topic.subscriptions
        assert not topic.ledger._cursors._transient
