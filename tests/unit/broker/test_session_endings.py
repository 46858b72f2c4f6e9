"""What happens to others when a session, a subscription or a topic ends at a bad moment."""

import asyncio
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch import limits
from anabranch.broker import BrokerSettings
from anabranch.errors import Fenced, StorageError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.policies import AutoTopicCreation
from anabranch.policies.effective import PolicyDefaults
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
    replies,
    requests,
    send_frame,
)


class StuckWire(Wire):
    """A peer that takes nothing: its connection lives on after a close, until it is cut."""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        super().close()
        asyncio.get_running_loop().call_soon(self.session.connection_lost, None)


@pytest.mark.parametrize("sub_type", [0, 1], ids=["exclusive", "shared"])
async def test_a_refused_peer_that_does_not_read_holds_nothing(
    sub_type: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_DRAIN_S_MAX", 0.01, raising=False)
    async with running_broker() as broker:
        other = await Wire(broker).connect()
        stuck = await StuckWire(broker).connect()
        await stuck.subscribe(sub_type=sub_type)
        stuck.session.data_received(flow(1, 10))
        await other.producer()
        other.publish(0, b"x")
        assert type(await stuck.next()) is Message
        assert type(await other.next()) is SendReceipt
        stuck.send(requests.connect("again"))
        assert stuck.closed
        assert (await other.subscribe(sub_type=sub_type)).type == BaseCommand.SUCCESS
        other.session.data_received(flow(1, 10))
        assert type(await other.next()) is Message
        await asyncio.sleep(0.05)
        assert stuck.session not in broker.sessions


async def test_unsubscribing_with_an_acknowledgement_under_way_disturbs_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker() as broker:
        wire, bystander = await Wire(broker).connect(), await Wire(broker).connect()
        await wire.subscribe()
        await bystander.producer()
        bystander.publish(0, b"x")
        receipt = await bystander.next()
        wire.session.data_received(flow(1, 10))
        assert type(await wire.next()) is Message
        store = broker.namespaces._store
        put = store.put

        async def slow_put(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(0.01)
            return await put(*arguments, **options)

        monkeypatch.setattr(store, "put", slow_put)
        acked = AckedId(receipt.ledger_id, receipt.entry_id, None, None)
        wire.session.data_received(ack(1, 0, [acked], 7) + encode(requests.unsubscribe(1, 8)))
        answers = [await wire.next(), await wire.next()]
        assert {answer.type for answer in answers} == {
            BaseCommand.ACK_RESPONSE,
            BaseCommand.SUCCESS,
        }
        bystander.publish(1, b"y")
        assert type(await bystander.next()) is SendReceipt


async def test_a_failed_unsubscribe_lets_the_consumer_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        (topic,) = broker.topics.all()

        async def fails(name: str) -> None:
            raise StorageError(f"cannot delete {name}")

        monkeypatch.setattr(topic.ledger, "delete_cursor", fails)
        wire.send(requests.unsubscribe(1, 9))
        assert (await wire.next()).close_consumer.consumer_id == 1
        assert (await wire.next()).error.request_id == 9
        assert (await wire.subscribe()).type == BaseCommand.SUCCESS
        assert broker.topics.all() != [topic]


async def test_two_unsubscribes_in_a_row_are_one() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        wire.send(requests.unsubscribe(1, 8), requests.unsubscribe(1, 9))
        answers = {answer.type: answer for answer in (await wire.next(), await wire.next())}
        assert answers[BaseCommand.SUCCESS].success.request_id == 8
        assert answers[BaseCommand.ERROR].error.error == ServerError.MetadataError
        assert len(broker.topics.all()) == 1


async def test_nobody_is_attached_to_a_subscription_that_was_deleted_meanwhile() -> None:
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.subscribe()
        (topic,) = broker.topics.all()
        deleted = topic.subscriptions["s"]
        second.send(requests.subscribe(TOPIC, "s", pb.CommandSubscribe.Exclusive, 1, 5))
        first.send(requests.unsubscribe(1, 9))
        assert (await first.next()).type == BaseCommand.PING
        assert (await first.next()).success.request_id == 9
        first.send(replies.pong())
        assert (await second.next()).success.request_id == 5
        assert topic.subscriptions["s"] is not deleted
        assert topic.subscriptions["s"].consumers


async def test_clients_are_told_when_another_owner_took_the_topic() -> None:
    """Nobody publishes and no ack asks for an answer: only the topic itself can notice."""
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        (topic,) = broker.topics.all()
        topic.ledger._fail(Fenced("another owner wrote the cursor"))
        assert (await wire.next()).type == BaseCommand.CLOSE_CONSUMER
        assert (await wire.subscribe()).type == BaseCommand.SUCCESS


async def test_a_terminated_topic_says_so_and_goes_on_serving_consumers() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe(initial_position=pb.CommandSubscribe.Earliest)
        wire.publish(0, b"x")
        assert type(await wire.next()) is SendReceipt
        (topic,) = broker.topics.all()
        await topic.ledger.terminate()
        wire.publish(1, b"too late")
        refused = (await wire.next()).send_error
        assert (refused.sequence_id, refused.error) == (1, ServerError.TopicTerminatedError)
        opened = await wire.ask(requests.producer(TOPIC, 2, 3))
        assert opened.error.error == ServerError.TopicTerminatedError
        wire.session.data_received(flow(1, 10))
        assert type(await wire.next()) is Message


async def test_the_largest_message_a_client_may_send_is_taken() -> None:
    """Clients compare less than the whole entry with the limit; C++ resends a refused one."""
    size = limits.KIB
    async with running_broker(BrokerSettings(message_bytes_max=size)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        wire.session.data_received(
            b"".join(send_frame(1, 0, 1, build_entry(metadata, bytes(size))))
        )
        assert type(await wire.next()) is SendReceipt
        too_large = build_entry(metadata, bytes(size + limits.ENTRY_OVERHEAD_BYTES))
        wire.session.data_received(b"".join(send_frame(1, 1, 1, too_large)))
        assert (await wire.next()).send_error.error == ServerError.NotAllowedError


@pytest.mark.parametrize("may_create", [True, False])
async def test_asking_for_partitions_tells_whether_a_topic_exists(may_create: bool) -> None:
    policies = PolicyDefaults(auto_topic_creation=AutoTopicCreation(allow=may_create))
    async with running_broker(BrokerSettings(policies=policies)) as broker:
        wire = await Wire(broker).connect()
        command = requests.partition_metadata(TOPIC, 1)
        command.partitionMetadata.metadata_auto_creation_enabled = not may_create
        answer = (await wire.ask(command)).partitionMetadataResponse
        assert answer.error == ServerError.TopicNotFound
        if may_create:
            await wire.producer()
            answer = (await wire.ask(command)).partitionMetadataResponse
            assert (answer.response, answer.partitions) == (answer.Success, 0)


async def test_a_peer_that_is_not_read_from_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PENDING_PUBLISHES_PER_CONNECTION_MAX", 1)
    monkeypatch.setattr(limits, "LIVENESS_CHECK_S", 0.01)
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.producer(name="p", name_is_users=True)
        (topic,) = broker.topics.all()
        monkeypatch.setattr(topic.ledger, "append", lambda entry, done: None)
        first.publish(0, b"never durable")
        assert first.reading_paused
        second.send(requests.producer(TOPIC, 1, 6, name="p", name_is_users=True))
        assert (await second.next()).error.error == ServerError.ProducerBusy
        assert not first.closed


async def test_a_backlog_in_the_cache_is_not_sent_all_at_once() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        await wire.producer()
        count = 3 * limits.DISPATCH_BATCHES_PER_TURN_MAX * limits.READ_BATCH_ENTRIES_MAX
        for sequence_id in range(count):
            wire.publish(sequence_id, b"x")
            assert type(await wire.next()) is SendReceipt
        wire.session.data_received(flow(1, count))
        wire.session.pause_writing()  # what a full socket does as soon as it is written to
        for _ in range(count // 3):
            assert type(await wire.next()) is Message
        await wire.quiet()
        wire.session.resume_writing()
        for _ in range(count - count // 3):
            assert type(await wire.next()) is Message
