"""One connection at a time: what is served, what is refused, what ends the connection."""

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch import limits
from anabranch.broker import Extensions
from anabranch.broker.session import Session
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import Position
from anabranch.wire import (
    AckedId,
    BaseCommand,
    Message,
    MessageMetadata,
    SendReceipt,
    ServerError,
    ack,
    build_entry,
    encode,
    flow,
    payload_of,
    replies,
    requests,
    send_frame,
)


async def published_and_subscribed(wire: Wire, *payloads: bytes, sub_type: int = 0) -> list[int]:
    await wire.connect()
    assert (await wire.subscribe(sub_type=sub_type)).type == BaseCommand.SUCCESS
    await wire.producer()
    ledger_ids = []
    for sequence_id, payload in enumerate(payloads):
        wire.publish(sequence_id, payload)
        receipt = await wire.next()
        assert type(receipt) is SendReceipt
        assert receipt.sequence_id == sequence_id
        ledger_ids.append(receipt.ledger_id)
    return ledger_ids


async def test_publish_deliver_acknowledge() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one", b"two")
        wire.session.data_received(flow(1, 10))
        messages = [await wire.next(), await wire.next()]
        assert [bytes(payload_of(m.entry)) for m in messages] == [b"one", b"two"]
        ids = [AckedId(m.ledger_id, m.entry_id, None, None) for m in messages]
        wire.session.data_received(ack(1, 0, ids, 77))
        answer = await wire.next()
        assert answer.ackResponse.request_id == 77
        assert not answer.ackResponse.HasField("error")


async def test_nothing_is_delivered_before_flow_and_only_as_much_as_it_permits() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one", b"two", b"three")
        await wire.quiet()
        wire.session.data_received(flow(1, 2))
        assert type(await wire.next()) is Message
        assert type(await wire.next()) is Message
        await wire.quiet()


@pytest.mark.goal("core.B1", part="handshake", broken_by="handshake_is_optional")
@pytest.mark.parametrize(
    "first",
    [requests.lookup(TOPIC, 1), replies.ping(), requests.producer(TOPIC, 1, 1)],
    ids=["lookup", "ping", "producer"],
)
async def test_connect_comes_first(first: BaseCommand) -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        wire.send(first)
        assert wire.closed


@pytest.mark.goal("core.B1", part="out of state", broken_by="nonsense_is_passed_over")
async def test_commands_that_make_no_sense_end_the_connection_and_nothing_else() -> None:
    entry = build_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
    nonsense = {
        "second connect": encode(requests.connect("again")),
        "send without a producer": b"".join(send_frame(9, 0, 1, entry)),
        "a server's command": encode(replies.success(1)),
        "no permits": flow(1, 0),
        "garbage": b"\x00\x00\x00\x10\x00\x00\x00\x0cgarbage-here",
    }
    async with running_broker() as broker:
        for name, data in nonsense.items():
            wire = await Wire(broker).connect()
            wire.session.data_received(data)
            assert wire.closed, name
        survivor = await Wire(broker).connect()
        assert (await survivor.ask(replies.ping())).type == BaseCommand.PONG


async def test_what_came_before_a_broken_frame_is_served() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.session.data_received(encode(replies.ping()) + b"\xff\xff\xff\xff" + bytes(4))
        assert wire.closed
        assert (await wire.next()).type == BaseCommand.PONG


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sub_type": 3, "read_compacted": True}, ServerError.NotAllowedError),
        ({"sub_type": 1, "read_compacted": True}, ServerError.NotAllowedError),
    ],
)
async def test_a_refused_subscription_leaves_nothing_behind(
    options: dict[str, int], code: int
) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        answer = await wire.subscribe(**options)  # type: ignore[arg-type]
        assert answer.error.error == code
        (topic,) = broker.topics.all()
        assert not topic.subscriptions
        assert not topic.ledger.cursors


async def test_names_and_namespaces_that_are_not_there() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        lookup = await wire.ask(requests.lookup("persistent://no/such/topic", 1))
        assert lookup.lookupTopicResponse.error == ServerError.TopicNotFound
        partitions = await wire.ask(requests.partition_metadata("x\ny", 2))
        assert partitions.partitionMetadataResponse.error == ServerError.InvalidTopicName


async def test_a_bad_checksum_is_refused_and_nothing_is_stored() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        entry = bytearray(
            build_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"abc")
        )
        entry[-1] ^= 1
        wire.session.data_received(b"".join(send_frame(1, 0, 1, bytes(entry))))
        refusal = (await wire.next()).send_error
        assert (refusal.error, refusal.sequence_id) == (ServerError.ChecksumError, 0)
        (topic,) = broker.topics.all()
        assert topic.ledger.entry_count == 0


async def test_one_exclusive_consumer_and_one_producer_of_a_name() -> None:
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.subscribe()
        await first.producer(name="p", name_is_users=True)
        second.send(requests.subscribe(TOPIC, "s", pb.CommandSubscribe.Exclusive, 1, 5))
        assert (await first.next()).type == BaseCommand.PING
        first.send(replies.pong())
        assert (await second.next()).error.error == ServerError.ConsumerBusy
        second.send(requests.producer(TOPIC, 1, 6, name="p", name_is_users=True))
        assert (await first.next()).type == BaseCommand.PING
        first.send(replies.pong())
        assert (await second.next()).error.error == ServerError.ProducerBusy


async def test_a_silent_holder_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVENESS_CHECK_S", 0.01)
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.subscribe()
        assert (await second.subscribe()).type == BaseCommand.SUCCESS
        assert first.closed


async def test_reading_pauses_while_too_much_is_not_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PENDING_PUBLISHES_PER_CONNECTION_MAX", 4)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        for sequence_id in range(4):
            wire.publish(sequence_id, b"x")
        assert wire.reading_paused
        for sequence_id in range(4):
            assert (await wire.next()).sequence_id == sequence_id
        assert not wire.reading_paused


async def test_all_connections_pause_while_the_store_has_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_HIGH", 1000)
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_LOW", 500)
    async with running_broker() as broker:
        wires = [await Wire(broker).connect() for _ in range(2)]
        for wire in wires:
            await wire.producer()
        wires[0].publish(0, bytes(2000))
        assert not any(wire.reading_paused for wire in wires)
        wires[1].publish(0, b"x")
        assert wires[1].reading_paused
        assert not wires[0].reading_paused, "it has published nothing more"
        for wire in wires:
            assert (await wire.next()).sequence_id == 0
            assert not wire.reading_paused
            wire.publish(1, b"x")
            assert (await wire.next()).sequence_id == 1


async def test_receipts_come_before_the_answer_to_a_close() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        wire.publish(0, b"x")
        wire.send(requests.close_producer(1, 8))
        assert type(await wire.next()) is SendReceipt
        assert (await wire.next()).success.request_id == 8


@pytest.mark.goal("core.B6", part="redelivery", broken_by="redeliveries_are_not_counted")
async def test_redelivery_on_a_shared_subscription_counts() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one", sub_type=1)
        wire.session.data_received(flow(1, 10))
        first = await wire.next()
        wanted = pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)
        wire.send(requests.redeliver(1, [wanted]))
        again = await wire.next()
        assert (again.ledger_id, again.entry_id) == (first.ledger_id, first.entry_id)
        assert again.redelivery_count == 1


@pytest.mark.goal("core.B4", part="exclusive", broken_by="exclusive_never_rewinds")
async def test_redelivery_on_an_exclusive_subscription_rewinds() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one", b"two", b"three")
        wire.session.data_received(flow(1, 10))
        first, second, _ = [await wire.next() for _ in range(3)]
        wire.session.data_received(
            ack(1, 0, [AckedId(second.ledger_id, second.entry_id, None, None)])
        )
        wire.send(requests.redeliver(1, consumer_epoch=4))
        again = [await wire.next(), await wire.next()]
        assert [bytes(payload_of(m.entry)) for m in again] == [b"one", b"three"]
        assert {m.consumer_epoch for m in again} == {4}
        assert again[0].entry_id == first.entry_id


async def test_unsubscribe_deletes_the_cursor() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        answer = await wire.ask(requests.unsubscribe(1, 9))
        assert answer.success.request_id == 9
        (topic,) = broker.topics.all()
        assert not topic.ledger.cursors


async def test_an_extension_serves_what_the_broker_does_not() -> None:
    served: list[int] = []

    def handler(session: Session, command: BaseCommand) -> None:
        served.append(command.tcClientConnectRequest.request_id)
        session.reply(replies.success(command.tcClientConnectRequest.request_id))

    class Observer:
        def topic_opened(self, topic: object) -> None:
            served.append(1)

        def topic_closed(self, topic: object) -> None:
            served.append(2)

    extensions = Extensions(observers=[Observer()])
    extensions.serve(BaseCommand.TC_CLIENT_CONNECT_REQUEST, handler)
    async with running_broker(extensions=extensions) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        asked = pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST)
        asked.tcClientConnectRequest.request_id = 42
        asked.tcClientConnectRequest.tc_id = 0
        answer = await wire.ask(asked)
        assert answer.success.request_id == 42
    assert served == [1, 42, 2]


async def test_markers_are_not_for_clients() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one")
        marker = MessageMetadata(producer_name="b", sequence_id=1, publish_time=1, marker_type=10)
        wire.session.data_received(b"".join(send_frame(1, 1, 1, build_entry(marker, b""))))
        await wire.next()
        wire.publish(2, b"two")
        receipt = await wire.next()
        wire.session.data_received(flow(1, 10))
        payloads = [bytes(payload_of((await wire.next()).entry)) for _ in range(2)]
        assert payloads == [b"one", b"two"]
        await wire.quiet()
        (topic,) = broker.topics.all()
        cursor = topic.subscriptions["s"].cursor
        assert cursor.is_acknowledged(Position(receipt.ledger_id, receipt.entry_id - 1))


async def test_a_caller_who_creates_is_not_refused_for_one_who_does_not() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.send(
            requests.subscribe(TOPIC, "s", pb.CommandSubscribe.Exclusive, 1, 1, create_topic=False),
            requests.producer(TOPIC, 1, 2),
        )
        answers = [await wire.next(), await wire.next()]
        assert {answer.type for answer in answers} == {
            BaseCommand.ERROR,
            BaseCommand.PRODUCER_SUCCESS,
        }
        assert answers[0].error.error == ServerError.TopicNotFound


async def test_an_impossible_cumulative_ack_is_refused_and_changes_nothing() -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        await published_and_subscribed(wire, b"one")
        wire.session.data_received(ack(1, 1, [AckedId(999, 5, None, None)], 7))
        answer = (await wire.next()).ackResponse
        assert (answer.request_id, answer.error) == (7, ServerError.MetadataError)
        (topic,) = broker.topics.all()
        assert topic.subscriptions["s"].cursor.backlog() == 1


async def test_what_a_closed_producer_sent_before_is_not_answered() -> None:
    """The client sends it again; a late receipt would not be of what it waits for then."""
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        wire.publish(0, b"x")
        (topic,) = broker.topics.all()
        topic.fail(OSError("gone"))
        assert (await wire.next()).type == BaseCommand.CLOSE_PRODUCER
        wire.publish(1, b"on its way when the producer was closed")
        await wire.quiet()
        assert not wire.closed


async def test_a_refused_send_is_answered_in_its_turn() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        bad = bytearray(
            build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"abc")
        )
        bad[-1] ^= 1
        wire.publish(0, b"good")
        wire.session.data_received(b"".join(send_frame(1, 1, 1, bytes(bad))))
        wire.publish(2, b"good again")
        first, second, third = [await wire.next() for _ in range(3)]
        assert (first.sequence_id, third.sequence_id) == (0, 2)
        assert second.send_error.sequence_id == 1
