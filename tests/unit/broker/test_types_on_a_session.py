"""Failover and Key_Shared as connections see them: who is told what, and what comes again."""

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import handover
from anabranch.broker.key_hashes import hash_of_key
from anabranch.generated.pulsar_api_pb2 import IntRange, KeySharedMeta, KeySharedMode
from anabranch.ids import Position
from anabranch.wire import (
    AckedId,
    BaseCommand,
    Message,
    MessageMetadata,
    ServerError,
    ack,
    build_entry,
    flow,
    payload_of,
    requests,
    send_frame,
)

SHARED, FAILOVER, KEY_SHARED = 1, 2, 3


def subscribing(name: str, sub_type: int, **options: object) -> BaseCommand:
    return requests.subscribe(
        TOPIC,
        "s",
        sub_type,  # type: ignore[arg-type]
        1,
        7,
        consumer_name=name,
        **options,  # type: ignore[arg-type]
    )


async def joined(wire: Wire, name: str, sub_type: int, **options: object) -> None:
    answer = await wire.ask(subscribing(name, sub_type, **options))
    assert answer.type == BaseCommand.SUCCESS, answer


async def is_active(wire: Wire) -> bool:
    change = await wire.next()
    assert change.type == BaseCommand.ACTIVE_CONSUMER_CHANGE, change
    return change.active_consumer_change.is_active


def acknowledged(wire: Wire, *positions: Position, kind: int = 0) -> None:
    ids = [AckedId(*position, None, None) for position in positions]
    wire.session.data_received(ack(1, kind, ids))


@pytest.mark.goal("core.B4", part="failover", broken_by="a_handover_does_not_rewind")
async def test_a_better_consumer_takes_over_from_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "FAILOVER_DELAY_S", 0.05)
    async with running_broker() as broker:
        publisher = await Wire(broker).connect()
        first, better = await Wire(broker).connect(), await Wire(broker).connect()
        await joined(first, "a", FAILOVER, priority_level=1)
        assert await is_active(first), "told after it is subscribed"
        await publisher.producer()
        positions = await publisher.published(6)
        assert await first.read(4) == [0, 1, 2, 3]
        acknowledged(first, positions[1], kind=1)
        await joined(better, "b", FAILOVER)
        better.session.data_received(flow(1, 100))
        first.session.data_received(flow(1, 100))
        acknowledged(first, positions[2])  # on its way while the other one takes over
        await first.quiet()
        await better.quiet()
        assert await is_active(better)
        assert not await is_active(first)
        assert await better.read(3) == [3, 4, 5]
        acknowledged(better, positions[4], kind=1)
        better.close()
        assert await is_active(first)
        assert await first.read(1) == [5], "the one that was left takes over at once"


async def test_failover_keeps_to_its_type() -> None:
    async with running_broker() as broker:
        wire, other = await Wire(broker).connect(), await Wire(broker).connect()
        await joined(wire, "a", FAILOVER)
        refused = await other.ask(subscribing("b", SHARED))
        assert refused.error.error == ServerError.ConsumerBusy


def publish(wire: Wire, number: int, key: str) -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1, partition_key=key
    )
    frame = send_frame(1, number, 1, build_entry(metadata, b"%d" % number))
    wire.session.data_received(b"".join(frame))


async def taken(wire: Wire, count: int) -> list[int]:
    messages = [await wire.next() for _ in range(count)]
    assert all(type(each) is Message for each in messages), messages
    return [int(bytes(payload_of(each.entry))) for each in messages]


@pytest.mark.goal("core.B4", part="key_shared sticky", broken_by="ranges_may_overlap")
async def test_lines_by_key_survive_gaps_and_a_departure() -> None:
    def sticky(start: int, end: int) -> KeySharedMeta:
        ranges = [IntRange(start=start, end=end)]
        return KeySharedMeta(keySharedMode=KeySharedMode.STICKY, hashRanges=ranges)

    half = 32_768
    low = next(f"k{n}" for n in range(99) if hash_of_key(b"k%d" % n) < half)
    high = next(f"k{n}" for n in range(99) if hash_of_key(b"k%d" % n) >= half)
    async with running_broker() as broker:
        publisher = await Wire(broker).connect()
        await publisher.producer()
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await joined(first, "a", KEY_SHARED, key_shared=sticky(0, half - 1))
        refused = await second.ask(subscribing("b", KEY_SHARED, key_shared=sticky(1, 65_535)))
        assert refused.error.error == ServerError.ConsumerAssignError
        await joined(second, "b", KEY_SHARED, key_shared=sticky(half, 65_535))
        first.session.data_received(flow(1, 2))
        for number in range(20):
            publish(publisher, number, high if number % 2 else low)
            await publisher.next()
        second.session.data_received(flow(1, 100))
        assert await taken(second, 10) == list(range(1, 20, 2))
        assert await taken(first, 2) == [0, 2]
        await first.quiet()
        first.session.data_received(flow(1, 3))
        assert await taken(first, 3) == [4, 6, 8]
        first.close()
        third = await Wire(broker).connect()
        await joined(third, "c", KEY_SHARED, key_shared=sticky(0, half - 1))
        third.session.data_received(flow(1, 100))
        assert await taken(third, 10) == list(range(0, 20, 2))
