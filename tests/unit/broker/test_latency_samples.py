"""Samples of how long publishing takes: one at a time, and none that is never heard of blocks."""

import pytest
from wire_peer import Wire, running_broker

from anabranch.broker.limits import LATENCY_SAMPLE_S_MAX
from anabranch.broker.publish_latency import PublishLatency
from anabranch.broker.topic import Topic
from anabranch.errors import InputError
from anabranch.ids import Position
from anabranch.wire import SendReceipt


class ByHand:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


async def test_a_message_that_is_refused_does_not_end_the_sampling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()

        def refuse(*_: object) -> None:
            raise InputError("not this one")

        with monkeypatch.context() as patched:
            patched.setattr(Topic, "publish", refuse)
            wire.publish(0, b"x")
            await wire.next()
        assert broker.publish_latency.is_idle
        assert sum(broker.publish_latency.counts) == 0
        wire.publish(1, b"x")
        assert type(await wire.next()) is SendReceipt
        assert sum(broker.publish_latency.counts) == 1


def test_a_sample_that_takes_too_long_makes_room_for_the_next() -> None:
    clock, heard = ByHand(), []
    latency = PublishLatency(clock)
    first = latency.timed(lambda *_: heard.append(1))
    clock.now_s += LATENCY_SAMPLE_S_MAX - 1
    latency.give_up_overdue()
    assert not latency.is_idle
    clock.now_s += 2
    latency.give_up_overdue()
    assert latency.is_idle
    latency.timed(lambda *_: heard.append(2))
    first(Position(1, 1), None)
    assert heard == [1]
    assert not latency.is_idle, "the second is under way"
    assert latency.counts[-1] == 1, "it took that long, and is told so"


async def test_a_broker_looks_for_samples_that_take_too_long() -> None:
    async with running_broker() as broker:
        broker.publish_latency._clock = clock = ByHand()
        broker.publish_latency.timed(lambda *_: None)
        clock.now_s += LATENCY_SAMPLE_S_MAX + 1
        await broker.rates.measure(broker.topics.all())
        assert broker.publish_latency.is_idle
