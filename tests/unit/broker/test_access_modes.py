"""Producers that want a topic for themselves: who gets it, who waits, who is fenced."""

import pytest
from wire_peer import TOPIC, Wire, memory_stores, running_broker

from anabranch.broker import Broker
from anabranch.broker.admission import EPOCH_PROPERTY
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
