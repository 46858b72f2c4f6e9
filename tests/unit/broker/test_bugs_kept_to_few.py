"""A bug that a request meets costs its connection and its topic, and nobody else anything."""

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import Broker, Extensions, Mishaps
from anabranch.broker.session import Session
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.broker.topics import Topics
from anabranch.generated.pulsar_api_pb2 import CommandEndTxn
from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.wire import BaseCommand, SendReceipt, flow, requests

END_OF_TRANSACTION = BaseCommand(type=BaseCommand.END_TXN, endTxn=CommandEndTxn(request_id=7))
ELSEWHERE = TopicName.parse("persistent://public/default/elsewhere")


def mistaken(*_: object, **__: object) -> None:
    raise RuntimeError("nobody thought of this")


def extended() -> Extensions:
    extensions = Extensions()
    extensions.serve(BaseCommand.END_TXN, mistaken)
    return extensions


async def served_elsewhere(broker: Broker) -> None:
    """Another client is served as ever, on another topic."""
    wire = await Wire(broker).connect()
    answer = await wire.ask(requests.producer(str(ELSEWHERE), 1, 1))
    assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
    wire.publish(0, b"x")
    assert type(await wire.next()) is SendReceipt
    wire.close()


@pytest.mark.goal("core.S3", part="commands", broken_by="bugs_leave_connections_waiting")
async def test_a_request_that_meets_a_bug_ends_its_connection_alone() -> None:
    async with running_broker(extensions=extended(), mishaps=Mishaps(None)) as broker:
        asks, looks_on = await Wire(broker).connect(), await Wire(broker).connect()
        await looks_on.producer()
        asks.send(END_OF_TRANSACTION)
        await looks_on.quiet()
        assert asks.closed
        assert not looks_on.closed
        assert broker.statistics().mishaps == 1
        looks_on.publish(0, b"x")
        assert type(await looks_on.next()) is SendReceipt


@pytest.mark.parametrize("where", [(Topic, "publish"), (Subscription, "flow")])
async def test_a_bug_on_the_data_path_has_the_topic_opened_anew(
    where: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(mishaps=Mishaps(None)) as broker:
        hit, other = await Wire(broker).connect(), await Wire(broker).connect()
        await hit.producer()
        await hit.subscribe()
        answer = await other.ask(requests.producer(TOPIC, 1, 5, name="other"))
        assert answer.type == BaseCommand.PRODUCER_SUCCESS
        with monkeypatch.context() as patched:
            patched.setattr(*where, mistaken)
            if where[0] is Topic:
                hit.publish(0, b"x")
            else:
                hit.session.data_received(flow(1, 1))
        assert hit.closed
        assert (await other.next()).type == BaseCommand.CLOSE_PRODUCER
        assert broker.mishaps.count == 1
        await served_elsewhere(broker)
        await other.producer(2)
        other.publish(0, b"x", number=2)
        assert type(await other.next()) is SendReceipt


async def test_a_topic_whose_entries_meet_a_bug_does_not_stop_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker(mishaps=Mishaps(None)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await wire.subscribe()
        with monkeypatch.context() as patched:
            patched.setattr(Subscription, "wake", mistaken)
            wire.publish(0, b"x")
            assert type(await wire.next()) is SendReceipt
            kinds = {(await wire.next()).type for _ in range(2)}
        assert kinds == {BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER}
        await served_elsewhere(broker)
        assert broker.mishaps.count == 1


async def test_a_topic_that_cannot_be_opened_for_a_bug_can_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker(mishaps=Mishaps(None)) as broker:
        wire = await Wire(broker).connect()
        with monkeypatch.context() as patched:
            patched.setattr(Topics, "_load_stored", mistaken)
            answer = await wire.ask(requests.producer(TOPIC, 1, 5))
            assert answer.type == BaseCommand.ERROR
        await wire.producer()
        assert broker.mishaps.count == 1


async def test_upkeep_goes_on_with_the_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(mishaps=Mishaps(None)) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        await served_elsewhere(broker)
        looked_after = []

        async def look_after(topic: Topic) -> None:
            looked_after.append(topic)
            mistaken()

        monkeypatch.setattr(broker.upkeep, "look_after", look_after)
        await broker.upkeep.look_after_all()
        assert len(looked_after) == broker.mishaps.count == 2


async def test_tests_and_simulations_end_with_the_first() -> None:
    async def served() -> None:
        async with running_broker(extensions=extended()) as broker:
            wire = await Wire(broker).connect()
            wire.send(END_OF_TRANSACTION)
            await wire.next()

    with pytest.raises(RuntimeError, match="nobody thought of this"):
        await served()


@pytest.mark.parametrize("survives", [True, False])
async def test_a_process_survives_what_a_test_does_not(
    survives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
    server = Standalone(real_runtime(), settings, survives_mishaps=survives)
    await server.start()
    try:
        wire = await Wire(server.broker).connect()
        monkeypatch.setattr(Session, "_on_send", mistaken)
        await wire.producer()
        wire.publish(0, b"x")
        assert (server.why_not_ready() is None) == survives
        shown = {metric.name: metric for metric in server.metrics()} if survives else {}
        assert survives == ("anabranch_unexpected_errors_total" in shown)
    finally:
        await server.close()
