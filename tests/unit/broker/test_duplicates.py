"""Messages that are sent twice and stored once: over reconnects, restarts and take-overs."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest
from wire_peer import TOPIC, Wire, memory_stores, running_broker

from anabranch.broker import Broker, BrokerSettings, deduplication
from anabranch.broker.deduplication import SequenceIds
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR
from anabranch.errors import OutcomeUnknown, StorageError
from anabranch.ids import Position
from anabranch.ledgers.memory import MemoryLedgerStore, MemoryWriter
from anabranch.managed_ledger import Cursor
from anabranch.metadata.store import MetadataStore
from anabranch.policies.effective import PolicyDefaults
from anabranch.wire import (
    BaseCommand,
    MessageMetadata,
    Send,
    SendReceipt,
    ServerError,
    build_entry,
    requests,
    send_frame,
)

Stores = tuple[MetadataStore, MemoryLedgerStore]
ON = BrokerSettings(policies=PolicyDefaults(deduplication_enabled=True))
DUPLICATE = (-1, -1)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    made = await memory_stores()
    yield made
    await made[0].close()


def entries_in(broker: Broker) -> int:
    (topic,) = broker.topics.all()
    return topic.ledger.entry_count


async def last_id(wire: Wire, number: int = 1, name: str = "p", epoch: int = 0) -> int:
    answer = await wire.ask(requests.producer(TOPIC, number, 9, name=name, epoch=epoch))
    assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
    return answer.producer_success.last_sequence_id


def send(wire: Wire, sequence_id: int, highest: int | None = None, **fields: int | str) -> None:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=sequence_id,
        highest_sequence_id=highest,
        publish_time=1,
        **fields,  # type: ignore[arg-type]
    )
    frame = send_frame(
        1,
        sequence_id,
        1,
        build_entry(metadata, b"x"),
        highest_sequence_id=highest,
        is_chunk="chunk_id" in fields,
    )
    wire.session.data_received(b"".join(frame))


async def receipt(wire: Wire) -> Position:
    answer = await wire.next()
    assert type(answer) is SendReceipt, answer
    return Position(answer.ledger_id, answer.entry_id)


@pytest.mark.goal("core.B3", part="stored once", broken_by="duplicates_are_stored")
async def test_what_is_sent_again_is_answered_and_not_stored() -> None:
    async with running_broker(ON) as broker:
        wire = await Wire(broker).connect()
        assert await last_id(wire) == -1
        for sequence_id in (3, 5):
            send(wire, sequence_id)
            assert await receipt(wire) > DUPLICATE
        for sequence_id in (5, 4, 3, 0):
            send(wire, sequence_id)
            assert await receipt(wire) == DUPLICATE
        send(wire, 6, highest=9)
        assert await receipt(wire) > DUPLICATE
        send(wire, 9)
        assert await receipt(wire) == DUPLICATE, "the last of a batch counts"
        assert entries_in(broker) == 3
        assert await last_id(wire, epoch=1) == 9
        assert await last_id(wire, 2, name="somebody else") == -1


@pytest.mark.goal("core.B3", part="stored once", broken_by="duplicates_overtake")
async def test_answers_keep_their_order_while_the_first_is_being_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker(ON) as broker:
        wire = await Wire(broker).connect()
        await last_id(wire)
        held: list[tuple[object, ...]] = []
        durable = MemoryWriter._durable
        monkeypatch.setattr(MemoryWriter, "_durable", lambda *all_of_it: held.append(all_of_it))
        for sequence_id in (0, 1, 0, 2, 1):
            send(wire, sequence_id)
        await wire.quiet()
        for each in held:
            durable(*each)  # type: ignore[arg-type]
        answers = [await wire.next() for _ in range(5)]
        assert [answer.sequence_id for answer in answers] == [0, 1, 0, 2, 1]
        assert [answer.ledger_id == -1 for answer in answers] == [False, False, True, False, True]


@pytest.mark.goal("core.B3", part="restart", broken_by="sequence_ids_are_not_replayed")
@pytest.mark.parametrize("snapshots", [False, True])
async def test_a_restart_forgets_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, snapshots: bool
) -> None:
    if snapshots:
        monkeypatch.setattr(deduplication, "DEDUPLICATION_SNAPSHOT_ENTRIES", 2)
    else:
        monkeypatch.setattr(deduplication.Deduplication, "snapshot", lambda self: None)
    async with running_broker(ON, stores=stores) as broker:
        wire = await Wire(broker).connect()
        await last_id(wire)
        for sequence_id in range(5):
            send(wire, sequence_id)
            await receipt(wire)
    async with running_broker(ON, stores=stores) as broker:
        wire = await Wire(broker).connect()
        assert await last_id(wire) == 4
        send(wire, 4)
        assert await receipt(wire) == DUPLICATE
        send(wire, 5)
        assert await receipt(wire) > DUPLICATE
        assert entries_in(broker) == 6
        (topic,) = broker.topics.all()
        cursor = topic.ledger.cursors[DEDUPLICATION_CURSOR]
        assert cursor.backlog() < 6 if snapshots else cursor.backlog() == 6
        assert topic.subscriptions == {}


@pytest.mark.goal("core.B3", part="take-over", broken_by="sequence_ids_are_not_replayed")
async def test_another_broker_takes_over(stores: Stores) -> None:
    async with running_broker(ON, stores=stores) as first:
        wire = await Wire(first).connect()
        await last_id(wire)
        for sequence_id in range(3):
            send(wire, sequence_id)
            await receipt(wire)
        async with running_broker(ON, stores=stores) as second:
            there = await Wire(second).connect()
            assert await last_id(there) == 2
            send(there, 2)
            assert await receipt(there) == DUPLICATE
            send(there, 3)
            assert await receipt(there) > DUPLICATE
            send(wire, 4)  # to the former owner, which finds out
            answer = await wire.next()
            assert answer.type == BaseCommand.CLOSE_PRODUCER


async def test_chunks_share_a_sequence_id_and_count_by_the_last() -> None:
    async with running_broker(ON) as broker:
        wire = await Wire(broker).connect()
        await last_id(wire)
        for again in (False, True):
            for chunk in range(3):
                send(wire, 7, chunk_id=chunk, num_chunks_from_msg=3, uuid="u")
                assert (await receipt(wire) == DUPLICATE) == (again and chunk == 2)
        assert await last_id(wire, epoch=1) == 7


async def test_without_the_policy_everything_is_stored() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        assert await last_id(wire) == -1
        for _ in range(2):
            send(wire, 0)
            assert await receipt(wire) > DUPLICATE
        assert entries_in(broker) == 2
        assert await last_id(wire, epoch=1) == -1


async def test_the_name_of_the_cursor_is_reserved() -> None:
    async with running_broker(ON) as broker:
        wire = await Wire(broker).connect()
        refused = requests.subscribe(TOPIC, DEDUPLICATION_CURSOR, 0, 1, 2)  # type: ignore[arg-type]
        assert (await wire.ask(refused)).error.error == ServerError.ProducerBusy


def test_the_producers_unheard_of_for_longest_are_forgotten() -> None:
    ids = SequenceIds({}, 2)
    for producer in ("a", "b"):
        ids.store(producer, 5)
    ids.store("a", 6)
    ids.store("c", 1)
    assert ids.newest() == [("c", 1), ("a", 6)]
    assert ids.last_stored("b") == -1
    assert ids.is_new("b", 0, 0)


async def test_what_was_sent_before_and_failed_is_no_duplicate() -> None:
    """Its receipt would be one for a message that is nowhere."""
    waiting: list[deduplication.PublishDone] = []
    answers: list[object] = []
    metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=1)
    five = Send(1, 5, 1, None, False, False, None, memoryview(build_entry(metadata, b"x")))
    nowhere = cast("Cursor", None)
    ids = SequenceIds({}, 10)
    known = deduplication.Deduplication(ids, nowhere, lambda _, done: waiting.append(done))

    def answered(position: Position | None, error: Exception | None) -> None:
        answers.append(position if error is None else type(error))

    for _ in range(2):
        known.publish("p", five, answered)
    waiting[0](None, StorageError("lost"))
    assert answers == [StorageError, OutcomeUnknown]
    known.publish("p", five, answered)
    assert answers[2:] == [OutcomeUnknown]
    known.close()


@pytest.mark.parametrize("wishes", [(True, False), (False, True), (True, False, True)])
@pytest.mark.parametrize("is_on", [True, False])
async def test_of_several_changes_of_mind_the_last_counts(
    wishes: tuple[bool, ...], is_on: bool
) -> None:
    async with running_broker(ON if is_on else None) as broker:
        wire = await Wire(broker).connect()
        await last_id(wire)
        (topic,) = broker.topics.all()
        await asyncio.gather(
            *(topic.follow(replace(topic.policies, deduplication_enabled=wish)) for wish in wishes)
        )
        assert (topic.deduplication is not None) == wishes[-1]
        assert (DEDUPLICATION_CURSOR in topic.ledger.cursors) == wishes[-1]
        send(wire, 0)
        assert await receipt(wire) > DUPLICATE


async def test_what_is_being_stored_when_it_begins_is_a_duplicate_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await last_id(wire)
        (topic,) = broker.topics.all()
        held: list[tuple[object, ...]] = []
        durable = MemoryWriter._durable
        with monkeypatch.context() as patched:
            patched.setattr(MemoryWriter, "_durable", lambda *all_of_it: held.append(all_of_it))
            send(wire, 0)
        begun = asyncio.ensure_future(
            topic.follow(replace(topic.policies, deduplication_enabled=True))
        )
        await wire.quiet()
        for each in held:
            durable(*each)  # type: ignore[arg-type]
        await begun
        assert await receipt(wire) > DUPLICATE
        send(wire, 0)
        assert await receipt(wire) == DUPLICATE
