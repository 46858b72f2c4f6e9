"""Topics that go from broker to broker while a client of ours uses them."""

import asyncio
import math
from collections.abc import Awaitable

import pytest
from several_brokers import NAME, TOPIC, Member, SeveralBrokers, several_brokers

from anabranch.broker.deduplication import Deduplication
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR
from anabranch.broker.unloading import unload
from anabranch.client import Client
from anabranch.client.brokers import Brokers
from anabranch.errors import Unreachable
from anabranch.managed_ledger import ManagedLedger


async def owner_of(brokers: SeveralBrokers) -> Member:
    (owner,) = [each for each in brokers.members if each.ownership.owns(NAME)]
    return owner


@pytest.mark.goal("core.B14", part="unload", broken_by="clients_leave_before_the_lock")
async def test_an_unloaded_topic_goes_on_at_the_next_owner_without_a_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several_brokers() as brokers, brokers.client() as client:
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        await producer.send(b"1")
        first = await consumer.receive()
        await consumer.acknowledge(first, wait=True)
        owner = await owner_of(brokers)
        target = next(each for each in brokers.members if each is not owner)

        async def no_lookup(self: Brokers, topic: object, url: str) -> None:
            raise AssertionError(f"{topic} was looked up")

        with monkeypatch.context() as patch:
            patch.setattr(Brokers, "owner_of", no_lookup)
            await unload(owner.broker, await brokers.bundle(), target.id)
            await producer.send(b"2")
            second = await consumer.receive()
        assert (first.value, second.value) == (b"1", b"2")
        assert await owner_of(brokers) is target
        assert second.id.position.ledger_id > first.id.position.ledger_id
        assert owner.broker.topics.all() == []


@pytest.mark.goal("core.B3", part="take-over", broken_by="handed_over_topics_leave_no_snapshot")
async def test_the_next_owner_knows_duplicates_without_reading_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    learn = Deduplication.learn

    async def noted(self: Deduplication, ledger: ManagedLedger, settled: Awaitable[None]) -> None:
        read.append(ledger.cursors[DEDUPLICATION_CURSOR].backlog())
        await learn(self, ledger, settled)

    async with (
        several_brokers(deduplicationEnabled=True) as brokers,
        brokers.client() as client,
    ):
        producer = await client.producer(TOPIC, name="p", batching=None)
        for _ in range(5):
            await producer.send(b"stored")
        owner = await owner_of(brokers)
        with monkeypatch.context() as patch:
            patch.setattr(Deduplication, "learn", noted)
            await unload(owner.broker, await brokers.bundle())
            await producer.send(b"stored by the next one")
        assert read == [0]
        taker = await owner_of(brokers)
        assert taker is not owner
        (topic,) = taker.broker.topics.all()
        assert topic.deduplication is not None
        assert topic.deduplication.ids.newest() == [("p", 5)]


async def test_a_broker_that_stops_hands_everything_over() -> None:
    async with several_brokers() as brokers, brokers.client() as client:
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"1")
        owner = await owner_of(brokers)
        await owner.broker.close()
        await producer.send(b"2")
        assert await owner_of(brokers) is not owner


@pytest.mark.goal("core.B14", part="lost", broken_by="lost_bundle_is_kept")
async def test_a_lost_lock_ends_the_topics_of_its_bundle() -> None:
    async with several_brokers() as brokers, brokers.client() as client:
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"1")
        owner = await owner_of(brokers)
        (topic,) = owner.broker.topics.all()
        await owner.lose_session()
        assert topic.closed
        assert owner.broker.topics.all() == []
        await producer.send(b"2")
        reader = await client.reader(TOPIC)
        assert [(await reader.read_next()).value for _ in range(2)] == [b"1", b"2"]


@pytest.mark.goal("core.B14", part="fenced", broken_by="topics_open_without_asking")
async def test_a_topic_is_opened_by_its_owner_alone() -> None:
    async with several_brokers() as brokers, brokers.client() as client:
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"1")
        owner = await owner_of(brokers)
        other = next(each for each in brokers.members if each is not owner)
        with pytest.raises(Exception, match="not served by this instance"):
            await other.broker.topics.open(NAME, create=True)
        await producer.send(b"2")
        assert producer.attachments == 1, "nobody was fenced"


async def test_a_client_goes_on_to_the_next_address_of_its_list() -> None:
    async with several_brokers(1) as brokers:
        client = Client(f"pulsar://127.0.0.1:1,{brokers[0].url.removeprefix('pulsar://')}")
        async with client:
            producer = await client.producer(TOPIC, batching=None)
            await producer.send(b"1")
            assert producer.attachments == 1, "by the address that answers"


@pytest.mark.goal("core.B14", part="lost", broken_by="who_is_cut_off_asks_its_store")
async def test_a_broker_without_a_session_has_clients_ask_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait for its metadata store, and they with it, while another has the topic."""
    async with several_brokers() as brokers:
        cut_off, owner = brokers[0], brokers[1]
        await owner.ownership.require(NAME)

        async def nobody_answers(_: str) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(cut_off.ownership.layouts, "of", nobody_answers)
        monkeypatch.setattr(
            type(cut_off.store),
            "session_valid_until",
            property(lambda store: -math.inf if store is cut_off.store else math.inf),
        )
        async with brokers.client() as client, asyncio.timeout(5):
            producer = await client.producer(TOPIC, batching=None)
            await producer.send(b"1")
        assert owner.broker.topics.get(NAME) is not None
        for ask in (cut_off.ownership.locate, cut_off.ownership.require):
            with pytest.raises(Unreachable, match="no session"):
                await ask(NAME)


async def test_a_bundle_that_went_round_in_a_circle_is_found_again() -> None:
    """Nobody sends clients to whom it gave the bundle once that one had it, and gave it on."""
    async with several_brokers() as brokers, brokers.client() as client:
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"0")
        first = await owner_of(brokers)
        others = [each for each in brokers.members if each is not first]
        async with asyncio.timeout(5):
            for turn, target in enumerate([*others, first], start=1):
                owner = await owner_of(brokers)
                await unload(owner.broker, await brokers.bundle(), target.id)
                await producer.send(b"%d" % turn)
                assert await owner_of(brokers) is target


async def test_a_bundle_that_was_lost_while_it_was_unloaded_was_given_to_nobody() -> None:
    """(1) A begins to unload. (2) Its session ends, and B takes the bundle. (3) A ends its unload.

    (4) B gives the bundle to A, which must not send clients back to B.
    """
    async with several_brokers(2) as brokers:
        one, other = brokers.members
        await one.ownership.require(NAME)
        bundle = await brokers.bundle()
        await one.ownership.begin_unload(bundle, other.id)
        await one.lose_session()
        await other.ownership.require(NAME)
        await one.ownership.finish_unload(bundle)
        await unload(other.broker, bundle, one.id)
        found = await one.ownership.locate(NAME, authoritative=True)
        assert (found.broker.broker_id, found.is_owner) == (one.id, True)
