"""One entry that cannot be read: who has to wait, who has not, and how to get past it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import wire_peer
from wire_peer import TOPIC, Wire, running_broker

from anabranch import limits
from anabranch.broker import Broker
from anabranch.broker.stall import Stall
from anabranch.errors import Fenced, StorageError
from anabranch.ids import Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.runtime.real_disk import RealDisk
from anabranch.wire import (
    AckedId,
    BaseCommand,
    Message,
    ack,
    flow,
    message_id,
    payload_of,
    requests,
)

SHARED = 1
DAMAGED = 5


@asynccontextmanager
async def damaged_topic(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Broker, Wire, list[Position], Callable[[], None]]]:
    """A broker without cache, a topic of ten messages, one of them damaged, and its mending."""
    store = await EmbeddedLedgerStore.open_folder(RealDisk(), str(folder))
    monkeypatch.setattr(wire_peer, "MemoryLedgerStore", lambda: store)
    try:
        config = ManagedLedgerConfig(entry_cache_bytes_max=0)
        async with running_broker(config=config) as broker:
            wire = await Wire(broker).connect()
            await wire.producer()
            await wire.subscribe()
            positions = await wire.published(10, list(range(100, 1100, 100)))
            (journal,) = (folder / "journal").glob("*.journal")
            whole = journal.read_bytes()
            at = whole.rindex(b"%d" % DAMAGED)

            def overwrite(byte: int) -> None:
                with journal.open("r+b") as file:
                    file.seek(at)
                    file.write(bytes([byte]))

            overwrite(whole[at] ^ 1)
            yield broker, wire, positions, lambda: overwrite(whole[at])
    finally:
        await store.close()


async def received(wire: Wire, count: int) -> list[int]:
    messages = [await wire.next() for _ in range(count)]
    assert all(type(each) is Message for each in messages), messages
    return [int(bytes(payload_of(each.entry))) for each in messages]


async def test_a_damaged_entry_stops_nobody_but_those_who_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, positions, _):
        (topic,) = broker.topics.all()
        wire.session.data_received(flow(1, 100))
        assert await received(wire, 5) == [0, 1, 2, 3, 4], "what comes before it is delivered"
        for _ in range(3):
            wire.session.data_received(flow(1, 1))
        await settled(wire)
        said = [record for record in caplog.records if record.message == "entry_unreadable"]
        assert len(said) == 1, "it is said once"
        assert str(positions[DAMAGED]) in str(vars(said[0])), "and where"
        other = await Wire(broker).connect()
        late = requests.subscribe(TOPIC, "other", 0, 7, 8)  # type: ignore[arg-type]
        late.subscribe.durable = False
        late.subscribe.start_message_id.CopyFrom(message_id(*positions[7]))
        assert (await other.ask(late)).type == BaseCommand.SUCCESS
        assert await other.read(3, 7) == [7, 8, 9]
        wire.publish(10, b"10")
        assert type(await wire.next()).__name__ == "SendReceipt", "the producer goes on"
        assert broker.topics.all() == [topic]
        assert not topic.closed


async def settled(wire: Wire) -> None:
    """Let reads of the disk come back; nothing may have been sent."""
    for _ in range(5):
        await wire.ask(requests.last_message_id(1, 5))
    await wire.quiet()


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_seek_goes_past_a_damaged_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_time: bool
) -> None:
    async with damaged_topic(tmp_path, monkeypatch) as (_, wire, positions, _mend):
        assert await wire.read(5) == [0, 1, 2, 3, 4]
        wire.session.data_received(flow(1, 100))
        await settled(wire)
        wire.send(
            requests.seek_to_time(1, 9, 800)
            if by_time
            else requests.seek(1, 9, message_id(*positions[7]))
        )
        assert (await wire.next()).type == BaseCommand.CLOSE_CONSUMER
        assert (await wire.next()).type == BaseCommand.SUCCESS
        await wire.subscribe()
        assert await wire.read(3) == [7, 8, 9]


@pytest.mark.parametrize(("time_ms", "first"), [(100, 0), (500, 4), (700, 5), (800, 7), (1000, 9)])
async def test_a_search_by_time_is_not_led_astray_by_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_ms: int, first: int
) -> None:
    """The damaged entry may be of the time asked for: it is not passed over."""
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, positions, _):
        wire.send(requests.seek_to_time(1, 9, time_ms))
        assert (await wire.next()).type == BaseCommand.CLOSE_CONSUMER
        assert (await wire.next()).type == BaseCommand.SUCCESS
        (topic,) = broker.topics.all()
        cursor = topic.subscriptions["s"].cursor
        assert topic.ledger.next_position(cursor.mark_delete) == positions[first]


@pytest.mark.parametrize("sub_type", [0, SHARED])
async def test_an_acknowledgement_goes_past_a_damaged_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sub_type: int
) -> None:
    async with damaged_topic(tmp_path, monkeypatch) as (_, wire, positions, _mend):
        wire.session.data_received(ack(1, 0, [AckedId(*positions[0], None, None)], None))
        assert (await wire.ask(requests.close_consumer(1, 50))).type == BaseCommand.SUCCESS
        await wire.subscribe(1, sub_type)
        wire.session.data_received(flow(1, 100))
        assert await received(wire, 4) == [1, 2, 3, 4]
        await settled(wire)
        wire.session.data_received(ack(1, 0, [AckedId(*positions[DAMAGED], None, None)], None))
        assert await received(wire, 4) == [6, 7, 8, 9]


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_damaged_entry_that_is_acknowledged_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """It alone before it is read, or everything up to it while it is being read."""
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, positions, _):
        (topic,) = broker.topics.all()
        read = topic.ledger.read
        needless = positions[: DAMAGED + 1] if meanwhile else positions[DAMAGED : DAMAGED + 1]

        def acknowledge() -> None:
            acked = [AckedId(*position, None, None) for position in needless]
            wire.session.data_received(ack(1, 0, acked, None))

        async def slow_read(start: Position, *rest: Any) -> Any:
            if start == positions[DAMAGED]:
                acknowledge()
            return await read(start, *rest)

        if meanwhile:
            monkeypatch.setattr(topic.ledger, "read", slow_read)
        else:
            acknowledge()
        wire.session.data_received(flow(1, 100))
        assert await received(wire, 9) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


async def test_a_replay_that_is_acknowledged_while_it_is_read_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, positions, mend):
        assert (await wire.ask(requests.close_consumer(1, 50))).type == BaseCommand.SUCCESS
        await wire.subscribe(1, SHARED)
        mend()
        wire.session.data_received(flow(1, 10))
        assert await received(wire, 10) == list(range(10))
        (topic,) = broker.topics.all()

        async def failing_read(start: Position, *rest: Any) -> Any:
            wire.session.data_received(ack(1, 0, [AckedId(*start, None, None)], None))
            raise StorageError("a bad sector")

        monkeypatch.setattr(topic.ledger, "read", failing_read)
        wire.session.data_received(flow(1, 100))
        wire.send(requests.redeliver(1, [message_id(*positions[DAMAGED])]))
        await settled(wire)
        assert topic.subscriptions["s"].cursor.is_acknowledged(positions[DAMAGED])
        monkeypatch.undo()
        wire.publish(10, b"10")
        assert type(await wire.next()).__name__ == "SendReceipt"
        assert await received(wire, 1) == [10], "nothing waits for an entry that nobody needs"


async def test_who_joins_and_asks_for_nothing_does_not_end_the_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNREADABLE_ENTRY_RETRY_S_MIN", 0.05)
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, _positions, mend):
        assert (await wire.ask(requests.close_consumer(1, 50))).type == BaseCommand.SUCCESS
        await wire.subscribe(1, SHARED)
        wire.session.data_received(flow(1, 100))
        assert await received(wire, 5) == [0, 1, 2, 3, 4]
        await settled(wire)
        other = await Wire(broker).connect()
        await other.subscribe(1, SHARED)
        mend()
        assert await received(wire, 5) == [5, 6, 7, 8, 9]


async def test_a_search_by_time_goes_past_a_bad_sector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, positions, _):
        (topic,) = broker.topics.all()
        read = topic.ledger.read

        async def failing_read(start: Position, *rest: Any) -> Any:
            if start == positions[DAMAGED]:
                raise StorageError("reading: Input/output error")
            return await read(start, *rest)

        monkeypatch.setattr(topic.ledger, "read", failing_read)
        wire.send(requests.seek_to_time(1, 9, 800))
        assert (await wire.next()).type == BaseCommand.CLOSE_CONSUMER
        assert (await wire.next()).type == BaseCommand.SUCCESS


async def test_a_mended_entry_is_delivered_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNREADABLE_ENTRY_RETRY_S_MIN", 0.05)
    async with damaged_topic(tmp_path, monkeypatch) as (_, wire, _positions, mend):
        wire.session.data_received(flow(1, 100))
        assert await received(wire, 5) == [0, 1, 2, 3, 4]
        await settled(wire)
        mend()
        assert await received(wire, 5) == [5, 6, 7, 8, 9]


async def test_a_lost_log_still_closes_its_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*arguments: Any) -> Any:
        raise Fenced("another owner")

    async with damaged_topic(tmp_path, monkeypatch) as (broker, wire, _positions, _mend):
        (topic,) = broker.topics.all()
        monkeypatch.setattr(topic.ledger, "read", lost)
        wire.session.data_received(flow(1, 100))
        closed = {(await wire.next()).type for _ in range(2)}
        assert closed == {BaseCommand.CLOSE_CONSUMER, BaseCommand.CLOSE_PRODUCER}
        assert topic.closed


async def test_an_unreadable_entry_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "UNREADABLE_ENTRY_RETRY_S_MAX", 5.0)
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    call_later = loop.call_later

    def noted(delay_s: float, *rest: Any) -> asyncio.TimerHandle:
        waits.append(delay_s)
        return call_later(delay_s, *rest)

    monkeypatch.setattr(loop, "call_later", noted)
    stall = Stall("s", lambda: None)
    for _ in range(4):
        stall.begin(Position(1, 5), StorageError("a bad sector"))
    stall.begin(Position(1, 6), StorageError("another"))
    assert stall.position == Position(1, 6)
    stall.end()
    assert stall.position is None
    assert waits == [1.0, 2.0, 4.0, 5.0, 1.0]
    assert [record.message for record in caplog.records] == ["entry_unreadable"] * 2
