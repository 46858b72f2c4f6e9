"""Seeks and the last message, command by command: who is told what, and what is durable when."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch import limits
from anabranch.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.managed_ledger.stored_cursor import StoredCursor
from anabranch.wire import (
    AckedId,
    BaseCommand,
    MessageIdData,
    MessageMetadata,
    ServerError,
    ack,
    build_entry,
    flow,
    message_id,
    replies,
    requests,
    send_frame,
    signed,
)

SHARED = 1


def topic_of(broker: Broker) -> Topic:
    (topic,) = broker.topics.all()
    return topic


def place(message: MessageIdData) -> Position:
    return Position(signed(message.ledgerId), signed(message.entryId))


async def seek(wire: Wire, command: BaseCommand, *closed: int) -> None:
    """Seek; the consumers of this connection are closed before the answer."""
    wire.send(command)
    for number in closed:
        assert (await wire.next()).close_consumer.consumer_id == number
    assert (await wire.next()).type == BaseCommand.SUCCESS


@contextmanager
def gated_writes() -> Iterator[asyncio.Event]:
    """Cursors are not stored until the event is set, or the block left."""
    gate = asyncio.Event()
    write = StoredCursor.write

    async def gated(self: StoredCursor, *state: Any) -> None:
        await gate.wait()
        await write(self, *state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredCursor, "write", gated)
        try:
            yield gate
        finally:
            gate.set()


async def test_a_seek_closes_every_consumer_and_resets_their_permits() -> None:
    async with running_broker() as broker:
        one, two = await Wire(broker).connect(), await Wire(broker).connect()
        await one.producer()
        await one.subscribe(1, SHARED)
        await one.subscribe(2, SHARED)
        await two.subscribe(3, SHARED)
        positions = await one.published(10)
        for wire, number in ((one, 1), (one, 2), (two, 3)):
            wire.session.data_received(flow(number, 2))
        delivered = [await one.next() for _ in range(4)] + [await two.next() for _ in range(2)]
        assert len({each.entry_id for each in delivered}) == 6
        await seek(one, requests.seek(1, 9, message_id(*positions[1])), 1, 2)
        assert (await two.next()).close_consumer.consumer_id == 3
        one.session.data_received(flow(1, 100))
        await one.quiet()
        await one.subscribe(1, SHARED)
        await one.quiet()
        assert await one.read(9) == list(range(1, 10)), "none is held by those who were closed"
        late = ack(3, 0, [AckedId(*positions[4], None, None)], 77)
        two.session.data_received(late)
        refused = (await two.next()).ackResponse
        assert (refused.request_id, refused.error) == (77, ServerError.ConsumerNotFound)
        assert not topic_of(broker).subscriptions["s"].cursor.is_acknowledged(positions[4])


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_answered_before_durable")
async def test_a_seek_is_answered_when_it_is_durable() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(10)
        cursor = topic_of(broker).subscriptions["s"].cursor
        wire.session.data_received(ack(1, 1, [AckedId(*positions[7], None, None)], 7))
        assert (await wire.next()).ackResponse.request_id == 7
        assert cursor.durable_mark_delete == positions[7]
        with gated_writes():
            wire.session.data_received(ack(1, 0, [AckedId(*positions[9], None, None)], 8))
            wire.send(requests.seek(1, 9, message_id(*positions[3])))
            assert (await wire.next()).close_consumer.consumer_id == 1
            await wire.quiet()
        answers = [await wire.next(), await wire.next()]
        assert answers[0].ackResponse.request_id == 8
        assert answers[1].success.request_id == 9
        assert cursor.durable_mark_delete == positions[2]
        await wire.subscribe()
        assert await wire.read(7) == list(range(3, 10)), "the old acknowledgements are forgotten"


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_keeps_what_is_being_read")
async def test_a_read_under_way_when_a_seek_comes_is_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = ManagedLedgerConfig(entry_cache_bytes_max=0)
    async with running_broker(config=config) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(10)
        assert await wire.read(8) == list(range(8))
        ledger, gate = topic_of(broker).ledger, asyncio.Event()
        read = ledger.read

        async def slow(*arguments: Any) -> Any:
            entries = await read(*arguments)
            await gate.wait()
            return entries

        monkeypatch.setattr(ledger, "read", slow)
        wire.session.data_received(flow(1, 100))
        await seek(wire, requests.seek(1, 9, message_id(*positions[3])), 1)
        await wire.subscribe()
        wire.session.data_received(flow(1, 2))
        await wire.quiet()
        gate.set()
        assert [(await wire.next()).entry_id for _ in range(2)] == [3, 4]
        await wire.quiet()


async def test_a_seek_into_a_batch_keeps_the_rest_of_it() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(3)
        where = message_id(*positions[1])
        where.ack_set.append(0b1111000)
        await seek(wire, requests.seek(1, 9, where), 1)
        await wire.subscribe()
        wire.session.data_received(flow(1, 100))
        message = await wire.next()
        assert (message.entry_id, message.ack_set) == (positions[1].entry_id, (0b1111000,))
        assert (await wire.next()).ack_set is None


async def test_a_refused_seek_changes_nothing() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(5)
        where = message_id(*positions[1])
        where.ack_set.extend([1] * (limits.ACK_SET_WORDS_MAX + 1))
        nowhere = pb.BaseCommand(
            type=pb.BaseCommand.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=9)
        )
        for command, words in (
            (requests.seek(1, 9, where), "ack set"),
            (nowhere, "Message id and message publish time were not present"),
            (requests.seek(7, 9, message_id(*positions[1])), "Consumer not found"),
            (requests.seek_to_time(7, 9, 5), "Consumer not found"),
        ):
            refused = (await wire.ask(command)).error
            assert (refused.request_id, refused.error) == (9, ServerError.MetadataError)
            assert words in refused.message
        assert await wire.read(5) == [0, 1, 2, 3, 4]


async def test_one_seek_at_a_time() -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe(1, SHARED)
        positions = await wire.published(5)
        with gated_writes():
            wire.send(requests.seek(1, 9, message_id(*positions[1])))
            assert (await wire.next()).close_consumer.consumer_id == 1
            await other.subscribe(2, SHARED)
            refused = (await other.ask(requests.seek_to_time(2, 10, 5))).error
            assert refused.error == ServerError.UnknownError
            assert "a seek of s is under way" in refused.message
        assert (await wire.next()).success.request_id == 9
        assert await other.read(4, 2) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("time_ms", "first"), [(0, 0), (100, 0), (101, 1), (250, 3), (300, 3), (9999, 10)]
)
async def test_seek_to_a_time_over_several_ledgers(time_ms: int, first: int) -> None:
    times = [100, 200, 200, 300, 300, 300, 400, 500, 600, 700]
    async with running_broker(config=ManagedLedgerConfig(ledger_entries_max=3)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        await wire.published(10, times)
        await seek(wire, requests.seek_to_time(1, 9, time_ms), 1)
        await wire.subscribe()
        assert await wire.read(10 - first) == list(range(first, 10))
        await wire.published(1)
        assert await wire.read(1) == [0]


async def test_an_older_epoch_does_not_come_back() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe(consumer_epoch=5)
        await wire.published(1)
        for epoch, echoed in ((3, 5), (6, 6)):
            wire.send(requests.redeliver(1, consumer_epoch=epoch))
            wire.session.data_received(flow(1, 1))
            assert (await wire.next()).consumer_epoch == echoed


# --- the last message -------------------------------------------------------------------------


async def last_of(wire: Wire, number: int = 1) -> tuple[Position, int, Position]:
    answer = (await wire.ask(requests.last_message_id(number, 5))).getLastMessageIdResponse
    assert answer.request_id == 5
    last = answer.last_message_id
    return place(last), last.batch_index, place(answer.consumer_mark_delete_position)


async def test_the_last_message_of_topics_in_every_state() -> None:
    async with running_broker(config=ManagedLedgerConfig(ledger_entries_max=4)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        topic = topic_of(broker)
        before = topic.ledger.last_confirmed
        assert await last_of(wire) == (EARLIEST, -1, before), "a topic without messages"
        positions = await wire.published(6)
        assert await last_of(wire) == (positions[5], -1, before)
        topic.subscriptions["s"].cursor.acknowledge_cumulative(positions[5])
        assert await last_of(wire) == (positions[5], -1, positions[5])
        await wire.published(2)
        topic.subscriptions["s"].cursor.acknowledge_cumulative(topic.ledger.last_confirmed)
        await topic.ledger.trim()
        assert topic.ledger.entry_count == 0
        last, batch_index, _ = await last_of(wire)
        assert (last, batch_index) == (EARLIEST, -1), "everything was trimmed"


async def test_markers_are_nobodys_last_message() -> None:
    marker = MessageMetadata(producer_name="b", sequence_id=9, publish_time=1, marker_type=10)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(2)
        for _ in range(2):
            wire.session.data_received(b"".join(send_frame(1, 9, 1, build_entry(marker, b""))))
            await wire.next()
        assert (await last_of(wire))[0] == positions[1]


async def test_the_last_message_of_a_consumer_that_is_not_open() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        refused = (await wire.ask(requests.last_message_id(1, 5))).error
        assert (refused.request_id, refused.error) == (5, ServerError.MetadataError)


async def test_partitions_name_themselves_in_the_last_message() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.ask(requests.subscribe(f"{TOPIC}-partition-3", "s", 0, 1, 2))  # type: ignore[arg-type]
        answer = (await wire.ask(requests.last_message_id(1, 5))).getLastMessageIdResponse
        assert answer.last_message_id.partition == 3
        assert (await wire.ask(replies.ping())).type == BaseCommand.PONG
