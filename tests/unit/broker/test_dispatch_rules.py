"""Who gets which entry, without any broker around it."""

import pytest

from anabranch import limits
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.dispatch import ExclusiveDispatcher, SharedDispatcher
from anabranch.broker.refusals import Refused
from anabranch.ids import Position
from anabranch.runtime.network import Buffer


class Outlet:
    def __init__(self) -> None:
        self.writable = True
        self.messages_out = 0
        self.parts: list[Buffer] = []

    def write_out(self, parts: list[Buffer]) -> None:
        self.parts += parts

    async def is_alive(self) -> bool:
        return True

    def payloads(self) -> list[bytes]:
        return [bytes(part) for part in self.parts[1::2]]


def consumer(number: int, *, permits: int = 0, priority: int = 0) -> tuple[Consumer, Outlet]:
    outlet = Outlet()
    made = Consumer(
        outlet,
        consumer_id=number,
        name=f"c{number}",
        priority=priority,
        partition=-1,
        epoch=None,
        disconnect=lambda: None,
    )
    made.permits = permits
    return made, outlet


def entries(*numbers: int, messages: int = 1) -> list[Delivery]:
    return [Delivery(Position(1, n), b"e%d" % n, messages, 0, None) for n in numbers]


@pytest.mark.goal("core.B4", part="exclusive", broken_by="exclusive_admits_anybody")
def test_exclusive_admits_one() -> None:
    dispatcher = ExclusiveDispatcher()
    dispatcher.add(consumer(1)[0])
    with pytest.raises(Refused, match="already connected"):
        dispatcher.add(consumer(2)[0])


@pytest.mark.goal("core.B4", part="exclusive", broken_by="exclusive_sends_without_permits")
def test_exclusive_sends_in_order_while_permits_last() -> None:
    dispatcher = ExclusiveDispatcher()
    first, outlet = consumer(1, permits=5)
    dispatcher.add(first)
    assert dispatcher.dispatch(entries(0, 1, 2, 3, messages=2)) == 3
    assert outlet.payloads() == [b"e0", b"e1", b"e2"]
    assert first.permits == -1
    assert dispatcher.entries_wanted() == 0


def test_a_consumer_that_does_not_read_gets_nothing() -> None:
    dispatcher = ExclusiveDispatcher()
    first, outlet = consumer(1, permits=5)
    dispatcher.add(first)
    outlet.writable = False
    assert dispatcher.entries_wanted() == 0
    assert dispatcher.dispatch(entries(0)) == 0


def test_shared_goes_round() -> None:
    dispatcher = SharedDispatcher()
    made = [consumer(n, permits=1000) for n in (1, 2)]
    for each, _ in made:
        dispatcher.add(each)
    count = 2 * limits.ROUND_ROBIN_ENTRIES_MAX
    assert dispatcher.dispatch(entries(*range(count))) == count
    assert [len(outlet.payloads()) for _, outlet in made] == [limits.ROUND_ROBIN_ENTRIES_MAX] * 2


def test_shared_prefers_lower_priority_numbers() -> None:
    dispatcher = SharedDispatcher()
    later, later_outlet = consumer(1, permits=10, priority=1)
    first, first_outlet = consumer(2, permits=2, priority=0)
    dispatcher.add(later)
    dispatcher.add(first)
    assert dispatcher.dispatch(entries(0, 1, 2, 3)) == 4
    assert first_outlet.payloads() == [b"e0", b"e1"]
    assert later_outlet.payloads() == [b"e2", b"e3"]


def test_what_a_leaving_consumer_held_is_replayed_without_a_count() -> None:
    dispatcher = SharedDispatcher()
    leaver, _ = consumer(1, permits=3)
    stayer, _ = consumer(2, permits=0)
    dispatcher.add(leaver)
    dispatcher.add(stayer)
    dispatcher.dispatch(entries(0, 1, 2))
    dispatcher.acknowledged(leaver, [Position(1, 1)])
    assert dispatcher.remove(leaver) is False
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 2)]
    assert dispatcher.redelivery_count(Position(1, 0)) == 0


def test_the_last_consumer_leaving_rewinds() -> None:
    dispatcher = SharedDispatcher()
    leaver, _ = consumer(1, permits=3)
    dispatcher.add(leaver)
    dispatcher.dispatch(entries(0))
    assert dispatcher.remove(leaver) is True
    assert dispatcher.replays(10) == []


def test_redelivery_counts_and_only_for_what_is_held() -> None:
    dispatcher = SharedDispatcher()
    first, outlet = consumer(1, permits=10)
    dispatcher.add(first)
    dispatcher.dispatch(entries(0, 1))
    assert first.unacked_messages == 2
    dispatcher.redeliver(first, [Position(1, 1), Position(9, 9)])
    assert dispatcher.replays(10) == [Position(1, 1)]
    assert dispatcher.redelivery_count(Position(1, 1)) == 1
    assert first.unacked_messages == 1
    dispatcher.dispatch(entries(1))
    assert dispatcher.replays(10) == []
    dispatcher.redeliver(first, None)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1)]
    assert dispatcher.redelivery_count(Position(1, 1)) == 2
    assert outlet.payloads() == [b"e0", b"e1", b"e1"]


def test_an_acknowledged_replay_is_dropped() -> None:
    dispatcher = SharedDispatcher()
    first, _ = consumer(1, permits=10)
    dispatcher.add(first)
    dispatcher.dispatch(entries(0))
    dispatcher.redeliver(first, None)
    dispatcher.acknowledged(first, [Position(1, 0)])
    assert dispatcher.replays(10) == []
    assert dispatcher.redelivery_count(Position(1, 0)) == 0


@pytest.mark.goal("core.B6", part="unacked limit", broken_by="consumers_hold_without_end")
def test_too_many_unacknowledged_messages_stop_a_consumer_until_half_are_acknowledged() -> None:
    dispatcher = SharedDispatcher()
    first, _ = consumer(1, permits=10 * limits.UNACKED_MESSAGES_PER_CONSUMER_MAX)
    dispatcher.add(first)
    quarter = limits.UNACKED_MESSAGES_PER_CONSUMER_MAX // 4
    dispatcher.dispatch(entries(0, 1, 2, 3, messages=quarter))
    assert dispatcher.entries_wanted() == 0
    dispatcher.acknowledged(first, [Position(1, 0)])
    assert dispatcher.entries_wanted() == 0
    dispatcher.partly_acknowledged(first, Position(1, 1), 1)
    assert dispatcher.entries_wanted() == 0
    dispatcher.acknowledged(first, [Position(1, 1)])
    assert dispatcher.entries_wanted() > 0
    assert first.unacked_messages == 2 * quarter


@pytest.mark.goal("core.B6", part="unacked limit", broken_by="subscriptions_hold_without_end")
def test_too_many_unacknowledged_messages_of_all_stop_a_subscription_until_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX", 40)
    dispatcher = SharedDispatcher()
    (first, _), (second, _) = consumer(1, permits=1000), consumer(2, permits=1000)
    dispatcher.add(first)
    dispatcher.add(second)
    assert dispatcher.dispatch(entries(*range(100))) == 40
    assert dispatcher.entries_wanted() == 0, "although both have permits"
    dispatcher.redeliver(first, None)
    assert dispatcher.entries_wanted() > 0
    again = dispatcher.replays(100)
    assert dispatcher.dispatch([Delivery(each, b"", 1, 1, None) for each in again]) == 20
    assert dispatcher.entries_wanted() == 0
    held = [*first.pending, *second.pending]
    for position in held[:19]:
        dispatcher.acknowledged(first, [position])
        assert dispatcher.entries_wanted() == 0
    dispatcher.acknowledged(first, [held[19]])
    assert dispatcher.entries_wanted() > 0
    assert dispatcher.dispatch(entries(*range(40, 100))) == 20


def test_what_is_sent_again_may_go_although_nothing_new_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX", 40)
    dispatcher = SharedDispatcher()
    first, _ = consumer(1, permits=1000)
    dispatcher.add(first)
    assert dispatcher.dispatch(entries(*range(40))) == 40
    dispatcher.redeliver(first, [Position(1, 7)])
    assert dispatcher.entries_wanted() > 0
    assert dispatcher.replays(10) == [Position(1, 7)]
    assert dispatcher.dispatch(entries(40)) == 0, "39 are unacknowledged: more than half"
    assert dispatcher.dispatch(entries(7)) == 1
    assert dispatcher.entries_wanted() == 0


def test_the_bound_of_a_subscription_ends_with_those_who_held_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNACKED_MESSAGES_PER_SUBSCRIPTION_MAX", 20)
    dispatcher = SharedDispatcher()
    (first, _), (second, outlet) = consumer(1, permits=1000), consumer(2)
    dispatcher.add(first)
    dispatcher.add(second)
    assert dispatcher.dispatch(entries(*range(30))) == 20
    dispatcher.remove(first)
    second.permits = 1000
    again = dispatcher.replays(100)
    assert dispatcher.dispatch([Delivery(each, b"r", 1, 1, None) for each in again]) == 20
    assert len(outlet.payloads()) == 20


class Compared(Position):
    """Counts comparisons."""

    count = 0

    def __lt__(self, other: object) -> bool:
        Compared.count += 1
        return tuple.__lt__(self, other)  # type: ignore[operator]


def test_handing_back_many_one_by_one_is_not_quadratic() -> None:
    dispatcher = SharedDispatcher()
    first, _ = consumer(1, permits=10_000)
    dispatcher.add(first)
    held = [Compared(1, n) for n in range(4000)]
    assert dispatcher.dispatch([Delivery(each, b"", 1, 0, None) for each in held]) == 4000
    Compared.count = 0
    for each in reversed(held):
        dispatcher.redeliver(first, [each])
    while again := dispatcher.replays(dispatcher.entries_wanted()):
        dispatcher.dispatch([Delivery(each, b"", 1, 1, None) for each in again])
    assert len(first.pending) == 4000
    assert Compared.count < 4000 * 60


def test_parts_of_a_batch_count_by_their_messages() -> None:
    dispatcher = SharedDispatcher()
    (first, _), (second, _) = consumer(1, permits=100), consumer(2)
    dispatcher.add(first)
    dispatcher.add(second)
    dispatcher.dispatch(entries(0, 1, messages=10))
    dispatcher.partly_acknowledged(second, Position(1, 0), 4)
    assert first.unacked_messages == 14, "whoever acknowledges, the holder is relieved"
    dispatcher.partly_acknowledged(first, Position(1, 0), 4)
    dispatcher.partly_acknowledged(first, Position(1, 7), 4)
    assert first.unacked_messages == 14
    dispatcher.redeliver(first, None)
    assert first.unacked_messages == 0


def test_holding_an_entry_twice_counts_once() -> None:
    member, _ = consumer(1)
    for messages in (3, 3, 2):
        member.hold(Position(1, 0), messages)
        assert member.unacked_messages == messages
    member.settle(member.pending.pop(Position(1, 0)))
    assert member.unacked_messages == 0
