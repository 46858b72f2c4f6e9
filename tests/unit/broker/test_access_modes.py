"""Producers that want a topic for themselves: who gets it, who waits, who is fenced."""

import asyncio

import pytest
from wire_peer import TOPIC, Wire, eventually, memory_stores, running_broker

from anabranch.broker import Broker
from anabranch.broker.admission import EPOCH_PROPERTY
from anabranch.broker.policies.quotas import Exceeded
from anabranch.broker.producer import WAIT_FOR_EXCLUSIVE, Producer
from anabranch.wire import BaseCommand, SendReceipt, ServerError, requests

SHARED, EXCLUSIVE, WAIT, FENCING = range(4)


def request(number: int, mode: int, topic_epoch: int | None = None, **options: int) -> BaseCommand:
    return requests.producer(
        TOPIC,
        number,
        100 + number,
        access_mode=mode,  # type: ignore[arg-type]
        topic_epoch=topic_epoch,
        **options,
    )


async def opened(wire: Wire, number: int, mode: int, epoch: int | None = None) -> BaseCommand:
    return await wire.ask(request(number, mode, epoch))


def refusal(answer: BaseCommand) -> int:
    assert answer.type == BaseCommand.ERROR, answer
    return answer.error.error


def epoch_of(broker: Broker) -> str | None:
    (topic,) = broker.topics.all()
    return topic.ledger.properties.get(EPOCH_PROPERTY)


@pytest.mark.goal("core.B2", part="access modes", broken_by="owners_are_not_alone")
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (SHARED, EXCLUSIVE, ServerError.ProducerFenced),
        (EXCLUSIVE, EXCLUSIVE, ServerError.ProducerFenced),
        (EXCLUSIVE, SHARED, ServerError.ProducerBusy),
        (FENCING, SHARED, ServerError.ProducerBusy),
        (FENCING, EXCLUSIVE, ServerError.ProducerFenced),
    ],
)
async def test_a_topic_has_one_owner_or_none(first: int, second: int, code: int) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        assert (await opened(wire, 1, first)).type == BaseCommand.PRODUCER_SUCCESS
        assert refusal(await opened(wire, 2, second)) == code
        await wire.ask(_close(1))
        assert (await opened(wire, 2, second)).type == BaseCommand.PRODUCER_SUCCESS


def _close(number: int) -> BaseCommand:
    return requests.close_producer(number, 300 + number)


@pytest.mark.goal("core.B2", part="access modes", broken_by="nobody_is_called_next")
async def test_who_waits_is_told_so_and_is_next() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        assert (await opened(wire, 1, SHARED)).producer_success.producer_ready
        for number in (2, 3):
            answer = await opened(wire, number, WAIT)
            assert answer.producer_success.request_id == 100 + number
            assert not answer.producer_success.producer_ready
        assert refusal(await opened(wire, 4, SHARED)) == ServerError.ProducerBusy
        for leaving, following in ((1, 2), (2, 3)):
            wire.send(_close(leaving))
            assert (await wire.next()).success.request_id == 300 + leaving
            promoted = (await wire.next()).producer_success
            assert (promoted.request_id, promoted.producer_ready) == (100 + following, True)
            assert promoted.topic_epoch == following - 2


async def test_who_waits_and_goes_away_is_not_waited_for() -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await opened(wire, 1, SHARED)
        assert not (await opened(wire, 2, WAIT)).producer_success.producer_ready
        assert not (await opened(other, 3, WAIT)).producer_success.producer_ready
        other.close()
        assert (await wire.ask(_close(2))).type == BaseCommand.SUCCESS
        answers = [await opened(wire, 4, SHARED), await wire.next()]
        kinds = {answer.type for answer in answers}
        assert kinds == {BaseCommand.PRODUCER_SUCCESS, BaseCommand.ERROR}


@pytest.mark.goal("core.B2", part="access modes", broken_by="a_fenced_producer_goes_on")
async def test_fencing_ends_the_others_without_a_word() -> None:
    async with running_broker() as broker:
        wire, waiting = await Wire(broker).connect(), await Wire(broker).connect()
        fencing = await Wire(broker).connect()
        old = (await opened(wire, 1, EXCLUSIVE)).producer_success
        assert old.topic_epoch == 0
        assert not (await opened(waiting, 2, WAIT)).producer_success.producer_ready
        new = (await opened(fencing, 3, FENCING)).producer_success
        assert new.topic_epoch == 1
        assert refusal(await waiting.next()) == ServerError.ProducerFenced
        await wire.quiet()
        wire.publish(0, b"too late")
        assert wire.closed
        again = await Wire(broker).connect()
        assert refusal(await opened(again, 1, EXCLUSIVE, 0)) == ServerError.ProducerFenced
        fencing.publish(0, b"mine", number=3)
        assert type(await fencing.next()) is SendReceipt


@pytest.mark.goal("core.B2", part="epochs", broken_by="topic_epoch_is_kept_in_memory")
async def test_the_epoch_is_stored_and_outlives_the_broker() -> None:
    stores = await memory_stores()
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        assert (await opened(wire, 1, EXCLUSIVE)).producer_success.topic_epoch == 0
        assert (await opened(wire, 2, FENCING)).producer_success.topic_epoch == 1
        assert epoch_of(broker) == "1"
    async with running_broker(stores=stores) as broker:
        wire = await Wire(broker).connect()
        assert refusal(await opened(wire, 1, EXCLUSIVE, 0)) == ServerError.ProducerFenced
        back = (await opened(wire, 2, FENCING, 1)).producer_success
        assert back.topic_epoch == 1, "an owner that comes back keeps its epoch"
        assert epoch_of(broker) == "1"
    await stores[0].close()


async def test_an_owner_that_comes_back_replaces_itself() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        name = (await opened(wire, 1, EXCLUSIVE)).producer_success.producer_name
        again = requests.producer(
            TOPIC, 1, 9, name=name, epoch=1, access_mode=EXCLUSIVE, topic_epoch=0
        )
        answer = (await wire.ask(again)).producer_success
        assert (answer.request_id, answer.topic_epoch) == (9, 0)


async def test_an_initial_subscription_begins_with_the_topic() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer(initial_subscription="s")
        await wire.published(2)
        answer = await wire.subscribe()
        assert answer.type == BaseCommand.SUCCESS
        assert await wire.read(2) == [0, 1]


async def test_who_waited_is_looked_at_again_when_it_is_its_turn() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await opened(wire, 1, SHARED)
        assert not (await opened(wire, 2, WAIT)).producer_success.producer_ready
        assert not (await opened(wire, 3, WAIT)).producer_success.producer_ready
        (topic,) = broker.topics.all()
        topic.over_quota = Exceeded("producer_exception", "too much")
        wire.send(_close(1))
        assert (await wire.next()).type == BaseCommand.SUCCESS
        for _ in range(2):  # the next one is not kept waiting for one that may not
            code = ServerError.ProducerBlockedQuotaExceededException
            assert refusal(await wire.next()) == code
        assert not topic.producers


async def test_whoever_waits_and_is_cancelled_holds_nobody_up() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await opened(wire, 1, EXCLUSIVE)
        (topic,) = broker.topics.all()
        admission = topic.admission
        waiting = [
            asyncio.ensure_future(topic.add_producer(_producer(wire, f"w{number}")))
            for number in range(3)
        ]
        await eventually(lambda: admission.waiting == 3)
        next(iter(admission._waiting)).cancel()  # and its task has not been told yet
        topic.remove_producer(topic.producers[next(iter(topic.producers))])
        await waiting[1]
        assert list(topic.producers) == ["w1"]
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        topic.remove_producer(topic.producers["w1"])
        waiting[2].cancel()  # right when it is its turn
        with pytest.raises(asyncio.CancelledError):
            await waiting[2]
        assert (await opened(wire, 9, EXCLUSIVE)).type == BaseCommand.PRODUCER_SUCCESS


def _producer(wire: Wire, name: str) -> Producer:
    return Producer(
        wire.session,
        producer_id=50 + int(name[1:]),
        name=name,
        epoch=0,
        schema_version=b"",
        access_mode=WAIT_FOR_EXCLUSIVE,
        topic_epoch=None,
        disconnect=lambda: None,
        fence=lambda: None,
        encrypted=False,
        said={},
        since_ms=0,
    )


async def test_those_who_wait_for_their_turn_do_not_keep_a_connection_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.broker.session.REQUESTS_PER_CONNECTION_MAX", 4)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await opened(wire, 1, EXCLUSIVE)
        for number in range(2, 12):
            answer = await opened(wire, number, WAIT)
            assert not answer.producer_success.producer_ready
        assert not wire.reading_paused
        await wire.ask(_close(1))
        ready = await wire.next()
        assert ready.producer_success.producer_ready
        for number in range(3, 12):  # they are answered, and it is all paid back
            wire.send(_close(number))
        await eventually(lambda: wire.session._requests == 0)
        assert not wire.reading_paused


async def test_no_more_wait_for_a_topic_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.broker.admission.PRODUCERS_WAITING_MAX", 2)
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await opened(wire, 1, EXCLUSIVE)
        (topic,) = broker.topics.all()
        assert not (await opened(wire, 2, WAIT)).producer_success.producer_ready
        assert not (await opened(other, 3, WAIT)).producer_success.producer_ready
        assert refusal(await opened(wire, 4, WAIT)) == ServerError.ProducerBusy
        wire.send(_close(2))
        assert topic.admission.waiting == 1, "whoever goes makes room at once"
        other.close()
        await eventually(lambda: topic.admission.waiting == 0)
