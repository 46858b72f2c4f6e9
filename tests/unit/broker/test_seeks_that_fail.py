"""Seeks that cannot be stored: where the subscription is afterwards, and who waits meanwhile."""

import asyncio
from typing import Any

import pytest
from wire_peer import Wire, running_broker

from anabranch import limits
from anabranch.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.errors import AnabranchError, StorageError, Unreachable
from anabranch.managed_ledger import stored_cursor
from anabranch.managed_ledger.stored_cursor import StoredCursor
from anabranch.wire import (
    AckedId,
    BaseCommand,
    ack,
    flow,
    message_id,
    requests,
)

SHARED = 1


def topic_of(broker: Broker) -> Topic:
    (topic,) = broker.topics.all()
    return topic


@pytest.mark.parametrize("error", [StorageError("no room"), Unreachable("nobody there")])
@pytest.mark.parametrize("by_time", [False, True])
async def test_a_seek_that_cannot_be_stored_has_not_moved_anything(
    monkeypatch: pytest.MonkeyPatch, error: AnabranchError, by_time: bool
) -> None:
    async def fails(self: StoredCursor, *state: Any) -> None:
        raise error

    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(5, [10, 20, 30, 40, 50])
        wire.session.data_received(ack(1, 0, [AckedId(*positions[0], None, None)], 76))
        wire.session.data_received(ack(1, 0, [AckedId(*positions[2], None, None)], 77))
        assert [(await wire.next()).ackResponse.request_id for _ in range(2)] == [76, 77]
        topic = topic_of(broker)
        cursor = topic.subscriptions["s"].cursor
        command = (
            requests.seek_to_time(1, 9, 40)
            if by_time
            else requests.seek(1, 9, message_id(*positions[3]))
        )
        with monkeypatch.context() as broken:
            broken.setattr(StoredCursor, "write", fails)
            wire.send(command)
            assert (await wire.next()).close_consumer.consumer_id == 1
            refused = (await wire.next()).error
            assert refused.request_id == 9
            assert str(error) in refused.message
            assert cursor.mark_delete == positions[0], "the seek was refused"
            await wire.subscribe()
            assert await wire.read(3) == [1, 3, 4], "everything goes on from where it was"
            wire.session.data_received(ack(1, 0, [AckedId(*positions[4], None, None)], 78))
            assert str(error) in (await wire.next()).ackResponse.message
        wire.session.data_received(ack(1, 0, [AckedId(*positions[3], None, None)], 79))
        assert not (await wire.next()).ackResponse.HasField("error")
        assert cursor.durable_mark_delete == positions[0], "nor does a later write move it"
        assert broker.topics.all() == [topic], "one failed write is no reason to close a topic"


async def test_who_comes_during_a_seek_waits_for_what_becomes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    async def fails(self: StoredCursor, *state: Any) -> None:
        await gate.wait()
        raise StorageError("no room")

    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(5)
        with monkeypatch.context() as broken:
            broken.setattr(StoredCursor, "write", fails)
            wire.send(requests.seek(1, 9, message_id(*positions[3])))
            assert (await wire.next()).close_consumer.consumer_id == 1
            await wire.subscribe()
            wire.session.data_received(flow(1, 5))
            await wire.quiet()
            gate.set()
            received = [await wire.next() for _ in range(6)]
        answers = [each for each in received if isinstance(each, BaseCommand)]
        assert [each.error.request_id for each in answers] == [9]
        entries = [each.entry_id for each in received if not isinstance(each, BaseCommand)]
        assert entries == [0, 1, 2, 3, 4], "in order, as if there had been no seek"


@pytest.mark.parametrize("fails", ["append", "node"])
async def test_a_failed_seek_that_may_be_stored_is_read_again(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A cursor with a ledger of its own: an append that failed may have taken effect.

    So has one that succeeded before the node, which names the ledger already, was not written.
    """
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 0)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        positions = await wire.published(5)
        wire.session.data_received(ack(1, 0, [AckedId(*positions[1], None, None)], 77))
        assert not (await wire.next()).ackResponse.HasField("error")
        append = stored_cursor.append_durably

        async def stored_but_failed(*arguments: Any) -> int:
            await append(*arguments)
            raise StorageError("the answer was lost")

        async def not_written(*arguments: Any) -> None:
            raise Unreachable("nobody answers")

        topic = topic_of(broker)
        if fails == "append":
            monkeypatch.setattr(stored_cursor, "append_durably", stored_but_failed)
        else:
            topic.subscriptions["s"].cursor.set_cursor_properties({"owner": "me"})
            monkeypatch.setattr(stored_cursor.StoredCursor, "_publish", not_written)
        wire.send(requests.seek(1, 9, message_id(*positions[3])))
        received = [await wire.next() for _ in range(3)]
        assert {each.type for each in received} == {
            BaseCommand.CLOSE_CONSUMER,
            BaseCommand.CLOSE_PRODUCER,
            BaseCommand.ERROR,
        }
        assert topic.closed
        await wire.subscribe()
        assert await wire.read(2) == [3, 4], "what is stored is what counts"
