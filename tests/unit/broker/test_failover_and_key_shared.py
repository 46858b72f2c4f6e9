"""One active consumer at a time, and keys that belong to consumers: the rules without a broker."""

from collections.abc import Iterable

import pytest
from members import Member

from anabranch.broker import key_shared
from anabranch.broker.consumer import Delivery, KeySharing
from anabranch.broker.failover import FailoverDispatcher
from anabranch.broker.key_hashes import AutoSplit, hash_of_entry, hash_of_key, murmur3
from anabranch.broker.key_shared import KeySharedDispatcher
from anabranch.broker.limits import KEY_HASHES
from anabranch.broker.refusals import Refused
from anabranch.ids import Position
from anabranch.wire import (
    EntryMetadata,
    MessageMetadata,
    ServerError,
    build_entry,
)


def entry(number: int, key: str = "") -> Delivery:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1, partition_key=key or None
    )
    payload = build_entry(metadata, b"%d" % number)
    return Delivery(Position(1, number), payload, 1, 0, None, EntryMetadata(metadata))


def entries(numbers: Iterable[int], key: str = "k") -> list[Delivery]:
    return [entry(number, key) for number in numbers]


# --- failover --------------------------------------------------------------------------------


@pytest.mark.goal("core.B4", part="failover", broken_by="the_first_to_come_stays_active")
@pytest.mark.parametrize("partition", range(4))
def test_the_active_one_follows_from_priority_and_name(partition: int) -> None:
    names = ["a", "b", "c"]
    for order in (names, names[::-1]):
        dispatcher = FailoverDispatcher("t")
        low = Member("0", priority=1, partition=partition)
        dispatcher.add(low)
        members = {name: Member(name, partition=partition) for name in order}
        for member in members.values():
            dispatcher.add(member)
        dispatcher.hand_over()
        assert dispatcher.active is members[names[partition % 3]]


def test_topics_without_partitions_spread_over_the_consumers() -> None:
    actives = set()
    for topic in range(30):
        dispatcher = FailoverDispatcher(f"topic-{topic}")
        for name in ("a", "b", "c"):
            dispatcher.add(Member(name))
        dispatcher.hand_over()
        assert dispatcher.active is not None
        actives.add(dispatcher.active.name)
    assert actives == {"a", "b", "c"}


@pytest.mark.goal("core.B4", part="failover", broken_by="standby_consumers_hear_nothing")
def test_everybody_is_told_who_is_active() -> None:
    dispatcher = FailoverDispatcher("t")
    first, better, worse = Member("b", priority=1), Member("c"), Member("a", priority=2)

    def told() -> list[list[bool]]:
        dispatcher.tell()
        return [each.seen.told for each in (first, worse, better)]

    dispatcher.add(first)
    assert told() == [[True], [], []]
    dispatcher.add(worse)
    assert told() == [[True], [False], []]
    dispatcher.add(better)
    assert dispatcher.is_handing_over
    assert told() == [[True], [False], []]
    assert dispatcher.hand_over()
    assert told() == [[True, False], [False], [True]]
    assert dispatcher.remove(better), "the next one starts again at the mark"
    assert dispatcher.active is first
    assert told() == [[True, False, True], [False], [True]]
    assert not dispatcher.remove(worse)


@pytest.mark.goal("core.B4", part="failover", broken_by="anybody_may_rewind")
def test_who_stands_by_does_not_set_back_the_active_one() -> None:
    dispatcher = FailoverDispatcher("t")
    active, standby = Member("a"), Member("b", priority=1)
    dispatcher.add(active)
    dispatcher.add(standby)
    assert dispatcher.active is active
    assert not dispatcher.redeliver(standby, None)
    assert not dispatcher.redeliver(standby, [Position(1, 0)])
    assert dispatcher.redeliver(active, None)


def test_nobody_is_sent_anything_during_a_handover() -> None:
    dispatcher = FailoverDispatcher("t")
    first, better = Member("b", priority=1), Member("c")
    dispatcher.add(first)
    assert dispatcher.dispatch(entries([0])) == 1
    dispatcher.add(better)
    assert dispatcher.entries_wanted() == 0
    assert dispatcher.dispatch(entries([1])) == 0
    dispatcher.remove(better)
    assert not dispatcher.hand_over(), "it went away again: the first one goes on"
    assert dispatcher.dispatch(entries([1])) == 1
    assert first.got == [b"0", b"1"]


# --- hashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"abc", 0xB3DD93FA & 0x7FFFFFFF),
        (b"abcd", 0x43ED676A),
        (b"Hello, world!", 0xC0363E43 & 0x7FFFFFFF),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_the_hash_is_murmur(data: bytes, expected: int) -> None:
    assert murmur3(data) == expected


def test_which_key_decides() -> None:
    def hashed(**fields: object) -> int:
        metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]
        return hash_of_entry(EntryMetadata(metadata))

    assert hashed(partition_key="k") == hash_of_key(b"k")
    assert hashed(partition_key="aw==", partition_key_b64_encoded=True) == hash_of_key(b"k")
    assert hashed(partition_key="k", ordering_key=b"o") == hash_of_key(b"o")
    assert hashed() == hash_of_key(b"p-7")


@pytest.mark.goal("core.B4", part="key_shared", broken_by="keys_go_to_the_first_consumer")
def test_hashes_are_divided_evenly_and_few_move() -> None:
    members = [Member(name) for name in "abcd"]
    division = AutoSplit()
    for member in members[:3]:
        division.add(member, KeySharing())
    before = [division.owner(key_hash) for key_hash in range(KEY_HASHES)]
    for member in members[:3]:
        assert 0.2 < before.count(member) / KEY_HASHES < 0.5
    division.add(members[3], KeySharing())
    after = [division.owner(key_hash) for key_hash in range(KEY_HASHES)]
    moved = [new for old, new in zip(before, after, strict=True) if old is not new]
    assert set(moved) == {members[3]}, "who stays keeps what is not given to the newcomer"
    assert 0.1 < len(moved) / KEY_HASHES < 0.4
    division.remove(members[3])
    assert [division.owner(key_hash) for key_hash in range(KEY_HASHES)] == before


# --- key_shared ------------------------------------------------------------------------------


def sticky(*ranges: tuple[int, int], out_of_order: bool = False) -> KeySharing:
    return KeySharing(sticky=True, out_of_order=out_of_order, ranges=ranges)


LOW, HIGH = (0, 32_767), (32_768, 65_535)


def keys_within(first: int, last: int) -> list[str]:
    return [f"k{n}" for n in range(100) if first <= hash_of_key(b"k%d" % n) <= last]


@pytest.mark.goal("core.B4", part="key_shared sticky", broken_by="ranges_may_overlap")
@pytest.mark.parametrize(
    "ranges", [[], [(0, 10), (5, 20)], [(32_000, 33_000)], [(5, 4)], [(-1, 4)], [(4, 65_536)]]
)
def test_ranges_that_cannot_be_had(ranges: list[tuple[int, int]]) -> None:
    first = Member("a", sharing=sticky(HIGH))
    dispatcher = KeySharedDispatcher(sticky())
    dispatcher.add(first)
    with pytest.raises(Refused) as refused:
        dispatcher.add(Member("b", sharing=sticky(*ranges)))
    assert refused.value.code == ServerError.ConsumerAssignError
    assert dispatcher.consumers == [first]
    dispatcher.add(Member("b", sharing=sticky(LOW)))


@pytest.mark.parametrize("sharing", [KeySharing(), sticky(LOW, out_of_order=True)])
def test_all_consumers_share_in_the_same_way(sharing: KeySharing) -> None:
    dispatcher = KeySharedDispatcher(sticky())
    dispatcher.add(Member("a", sharing=sticky(HIGH)))
    with pytest.raises(Refused) as refused:
        dispatcher.add(Member("b", sharing=sharing))
    assert refused.value.code == ServerError.ConsumerBusy


def test_what_nobody_owns_waits_for_its_owner() -> None:
    dispatcher = KeySharedDispatcher(sticky())
    low, high = Member("a", sharing=sticky(LOW)), Member("b", sharing=sticky(HIGH))
    dispatcher.add(low)
    low_key, high_key = keys_within(*LOW)[0], keys_within(*HIGH)[0]
    mixed = [entry(0, high_key), entry(1, low_key), entry(2, high_key)]
    assert dispatcher.dispatch(mixed) == 3
    assert low.got == [b"1"]
    assert dispatcher.replays(10) == []
    dispatcher.add(high)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 2)]
    assert dispatcher.dispatch([mixed[0], mixed[2]]) == 2
    assert high.got == [b"0", b"2"]
    assert dispatcher.replays(10) == []


def moved_key() -> tuple[KeySharedDispatcher, Member, Member, str]:
    """A key that belongs to one consumer as long as the other is not there."""
    dispatcher = KeySharedDispatcher(KeySharing())
    first, second = Member("a"), Member("b")
    dispatcher.add(first)
    probe = AutoSplit()
    for member in (first, second):
        probe.add(member, KeySharing())
    key = next(f"k{n}" for n in range(100) if probe.owner(hash_of_key(b"k%d" % n)) is second)
    return dispatcher, first, second, key


@pytest.mark.goal("core.B4", part="key_shared", broken_by="hashes_move_undrained")
def test_a_hash_that_moves_drains_first() -> None:
    dispatcher, first, second, key = moved_key()
    dispatcher.dispatch(entries([0, 1], key))
    dispatcher.add(second)
    assert dispatcher.dispatch(entries([2, 3], key)) == 2, "read, and waiting"
    assert second.got == []
    dispatcher.acknowledged(first, [Position(1, 0)])
    assert dispatcher.replays(10) == []
    dispatcher.acknowledged(first, [Position(1, 1)])
    assert dispatcher.replays(10) == [Position(1, 2), Position(1, 3)]
    dispatcher.dispatch(entries([2, 3], key))
    assert (first.got, second.got) == ([b"0", b"1"], [b"2", b"3"])


@pytest.mark.goal("core.B4", part="key_shared order", broken_by="later_entries_pass_waiting_ones")
def test_what_a_leaver_held_goes_before_what_came_later() -> None:
    dispatcher, first, second, key = moved_key()
    dispatcher.dispatch(entries([0, 1], key))
    dispatcher.add(second)
    dispatcher.dispatch(entries([2], key))
    dispatcher.remove(first)
    assert dispatcher.dispatch(entries([3], key)) == 1
    assert second.got == [], "0, 1 and 2 are in line"
    again = dispatcher.replays(10)
    assert again == [Position(1, number) for number in range(4)]
    dispatcher.dispatch(entries(range(4), key))
    assert second.got == [b"0", b"1", b"2", b"3"]


def test_out_of_order_does_not_wait_for_the_former_owner() -> None:
    _, first, second, key = moved_key()
    sharing = KeySharing(out_of_order=True)
    first.sharing = second.sharing = sharing
    dispatcher = KeySharedDispatcher(sharing)
    dispatcher.add(first)
    dispatcher.dispatch(entries([0, 1], key))
    dispatcher.add(second)
    dispatcher.dispatch(entries([2], key))
    assert second.got == [b"2"]


@pytest.mark.goal("core.B4", part="key_shared", broken_by="a_slow_consumer_holds_up_all")
def test_a_consumer_without_permits_does_not_hold_up_the_others() -> None:
    dispatcher = KeySharedDispatcher(sticky())
    slow = Member("a", sharing=sticky(LOW), permits=1)
    quick = Member("b", sharing=sticky(HIGH))
    dispatcher.add(slow)
    dispatcher.add(quick)
    low_key, high_key = keys_within(*LOW)[0], keys_within(*HIGH)[0]
    numbers = range(20)
    mixed = [entry(n, high_key if n % 2 else low_key) for n in numbers]
    assert dispatcher.dispatch(mixed) == 20
    assert quick.got == [b"%d" % n for n in numbers if n % 2]
    assert slow.got == [b"0"]
    assert dispatcher.replays(100) == []
    slow.permits = 3
    again = dispatcher.replays(100)
    assert again == [Position(1, 2), Position(1, 4), Position(1, 6)]
    dispatcher.dispatch([mixed[position.entry_id] for position in again])
    assert slow.got == [b"0", b"2", b"4", b"6"]


def test_reading_ahead_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_shared, "ENTRIES_AHEAD_PER_CONSUMER_MAX", 3)
    dispatcher = KeySharedDispatcher(sticky())
    slow = Member("a", sharing=sticky(LOW), permits=0)
    quick = Member("b", sharing=sticky(HIGH))
    dispatcher.add(slow)
    dispatcher.add(quick)
    low_key, high_key = keys_within(*LOW)[0], keys_within(*HIGH)[0]
    assert dispatcher.dispatch(entries(range(10), low_key)) == 6
    assert dispatcher.entries_wanted() == 0
    slow.permits = 2
    assert dispatcher.entries_wanted() > 0
    assert dispatcher.dispatch(entries([0, 1], low_key)) == 2
    assert slow.got == [b"0", b"1"]
    assert dispatcher.dispatch([entry(6, high_key)]) == 1
    assert quick.got == [b"6"]


def test_what_is_asked_for_again_comes_before_what_follows() -> None:
    dispatcher = KeySharedDispatcher(KeySharing())
    only = Member("a")
    dispatcher.add(only)
    dispatcher.dispatch(entries([0, 1]))
    dispatcher.redeliver(only, [Position(1, 0)])
    assert dispatcher.redelivery_count(Position(1, 0)) == 1
    assert dispatcher.dispatch(entries([2])) == 1
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 2)]
    dispatcher.dispatch(entries([0, 2]))
    assert only.got == [b"0", b"1", b"0", b"2"]
