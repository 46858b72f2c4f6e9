"""Who asks for a transaction is told at once that there are none, in Pulsar's own words."""

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import (
    AckedId,
    MessageMetadata,
    ServerError,
    ack,
    build_entry,
    flow,
    requests,
    send_frame,
)

NOT_ENABLED = "Transactions are not enabled."
ASKED_OF_A_COORDINATOR = {
    "NEW_TXN": ("newTxn", "newTxnResponse"),
    "ADD_PARTITION_TO_TXN": ("addPartitionToTxn", "addPartitionToTxnResponse"),
    "ADD_SUBSCRIPTION_TO_TXN": ("addSubscriptionToTxn", "addSubscriptionToTxnResponse"),
    "END_TXN": ("endTxn", "endTxnResponse"),
    "TC_CLIENT_CONNECT_REQUEST": ("tcClientConnectRequest", "error"),
}


@pytest.mark.goal("core.B1", part="not served", broken_by="transactions_are_left_unanswered")
@pytest.mark.parametrize("kind", ASKED_OF_A_COORDINATOR)
async def test_coordinators_refuse(kind: str) -> None:
    field, answered = ASKED_OF_A_COORDINATOR[kind]
    command = pb.BaseCommand(type=pb.BaseCommand.Type.Value(kind))
    asked = getattr(command, field)
    asked.request_id = 9
    if "tc_id" in asked.DESCRIPTOR.fields_by_name:
        asked.tc_id = 0
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        refusal = getattr(await wire.ask(command), answered)
        assert (refusal.request_id, refusal.error) == (9, ServerError.NotAllowedError)
        assert refusal.message == NOT_ENABLED
        assert not wire.closed


async def test_a_client_learns_it_before_it_looks_for_a_coordinator() -> None:
    """The Java client asks this first, and would wait for a namespace that it cannot create."""
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        topic = "persistent://pulsar/system/transaction_coordinator_assign"
        refusal = (await wire.ask(requests.partition_metadata(topic, 9))).partitionMetadataResponse
        assert (refusal.request_id, refusal.error) == (9, ServerError.NotAllowedError)
        assert refusal.message == NOT_ENABLED


async def test_messages_and_acknowledgements_of_a_transaction_are_refused_and_change_nothing() -> (
    None
):
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        await wire.producer()
        entry = build_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
        wire.session.data_received(b"".join(send_frame(1, 0, 1, entry, txn=(1, 2))))
        refusal = (await wire.next()).send_error
        assert (refusal.sequence_id, refusal.error) == (0, ServerError.NotAllowedError)
        wire.publish(1, b"without")
        await wire.next()
        (topic,) = broker.topics.all()
        assert topic.ledger.entry_count == 1
        wire.session.data_received(flow(1, 1))
        message = await wire.next()
        place = AckedId(message.ledger_id, message.entry_id, None, None)
        wire.session.data_received(ack(1, 0, [place], 7, txn=(1, 2)))
        answer = (await wire.next()).ackResponse
        assert (answer.request_id, answer.error) == (7, ServerError.NotAllowedError)
        assert (answer.txnid_most_bits, answer.txnid_least_bits) == (1, 2)
        assert topic.subscriptions["s"].cursor.backlog() == 1


@pytest.mark.goal("core.B6", part="figures", broken_by="consumers_have_no_backlog")
async def test_a_client_asks_for_the_figures_of_its_consumer() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe(sub_type=1)
        await wire.producer()
        for number in range(3):
            wire.publish(number, b"x")
            await wire.next()
        wire.session.data_received(flow(1, 2))
        for _ in range(2):
            await wire.next()
        figures = (await wire.ask(requests.consumer_stats(1, 9))).consumerStatsResponse
        assert not figures.HasField("error_code")
        assert (figures.request_id, figures.msgBacklog, figures.type) == (9, 3, "Shared")
        assert (figures.availablePermits, figures.unackedMessages) == (0, 2)
        assert figures.consumerName
        unknown = (await wire.ask(requests.consumer_stats(5, 10))).consumerStatsResponse
        assert (unknown.request_id, unknown.error_code) == (10, ServerError.ConsumerNotFound)
        assert not wire.closed


async def test_other_topics_of_that_name_are_topics() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        answer = (await wire.ask(requests.partition_metadata(TOPIC, 1))).partitionMetadataResponse
        assert answer.partitions == 0
        assert not answer.HasField("error")
