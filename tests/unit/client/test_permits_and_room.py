"""What bounds the memory of consumers and producers."""

import asyncio

import pytest

from anabranch.client.later import Later
from anabranch.client.message import MessageId
from anabranch.client.permits import Permits
from anabranch.client.room import Room
from anabranch.errors import ConfigError
from anabranch.ids import Position
from anabranch.limits import MIB


def test_the_first_permits_fit_even_the_largest_messages() -> None:
    permits = Permits(1000, 64 * MIB)
    assert permits.due() == 12
    assert permits.due() == 0


def test_small_messages_open_the_whole_queue() -> None:
    permits = Permits(1000, 64 * MIB)
    first = permits.due()
    permits.arrived(first, first, first * 100)
    assert permits.due() == 1000 - first
    assert permits.outstanding + permits.queued_messages == 1000


def test_large_messages_are_asked_for_one_by_one() -> None:
    permits = Permits(1000, 4 * MIB)
    assert permits.due() == 1
    for _ in range(5):
        permits.arrived(1, 1, 3 * MIB)
        assert permits.due() == 0
        permits.taken(1, 3 * MIB)
        assert permits.due() == 1


def test_permits_are_renewed_when_half_are_used() -> None:
    permits = Permits(10, MIB)
    assert permits.due() == 1
    permits.arrived(1, 1, 1)
    assert permits.due() == 9
    permits.taken(1, 1)
    for _ in range(3):
        permits.arrived(1, 0, 0)
        assert permits.due() == 0
    permits.arrived(1, 0, 0)
    assert permits.due() == 5


def test_a_batch_beyond_the_permits_is_counted() -> None:
    permits = Permits(10, MIB)
    permits.due()
    permits.arrived(50, 50, 50)
    assert permits.due() == 9
    assert permits.outstanding + permits.queued_messages == 10
    permits.taken(45, 45)
    assert permits.due() == 45
    assert permits.outstanding + permits.queued_messages == 10


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="messages_max=0"):
        Permits(0, 1)
    with pytest.raises(ConfigError, match="bytes_max=0"):
        Room(1, 0)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_room_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    room = Room(2, 100)
    order: list[int] = []

    async def take(number: int, size: int) -> None:
        await room.take(size)
        order.append(number)

    tasks = [asyncio.create_task(take(n, size)) for n, size in enumerate((60, 60, 10, 10))]
    await settle()
    assert order == [0], "the small ones do not overtake the large one"
    assert not room.try_take(1)
    room.give_back(1, 60)
    await settle()
    assert order == [0, 1, 2]
    room.give_back(1, 60)
    await settle()
    assert order == [0, 1, 2, 3]
    assert (room.messages, room.bytes) == (2, 20)
    await asyncio.gather(*tasks)


async def test_a_message_larger_than_the_room_gets_all_of_it() -> None:
    room = Room(10, 100)
    assert room.try_take(1000)
    assert not room.try_take(1)
    room.give_back(1, 1000)
    assert room.try_take(1)


async def test_who_stops_waiting_holds_nobody_up() -> None:
    room = Room(1, 100)
    assert room.try_take(1)
    first, second = (asyncio.create_task(room.take(1)) for _ in range(2))
    await settle()
    first.cancel()
    room.give_back(1, 1)
    await settle()
    assert second.done()
    assert (room.messages, room.bytes) == (1, 1)


async def test_room_given_at_the_moment_of_the_cancellation_is_not_lost() -> None:
    room = Room(1, 100)
    assert room.try_take(1)
    first, second = (asyncio.create_task(room.take(1)) for _ in range(2))
    await settle()
    room.give_back(1, 1)  # first has it, and does not know yet
    first.cancel()
    await settle()
    assert first.cancelled()
    assert second.done()
    assert room.messages == 1
    room.give_back(1, 1)
    assert room.try_take(1)


async def test_nobody_overtakes_those_who_have_room_and_do_not_know() -> None:
    room = Room(1, 100)
    assert room.try_take(1)
    waiting = asyncio.create_task(room.take(1))
    await settle()
    room.give_back(1, 1)
    assert not room.try_take(1)
    await waiting


def test_later_gives_what_is_due_in_order() -> None:
    later = Later()
    later.add(MessageId(2, 1), 5.0)
    later.add(MessageId(1, 9), 5.0)
    later.add(MessageId(1, 1), 9.0)
    later.add(MessageId(3, 3), 4.0)
    later.drop(MessageId(3, 3))
    assert later.next_s() == 5.0
    assert later.take(4.9) == []
    assert later.take(5.0) == [Position(1, 9), Position(2, 1)]
    assert (len(later), later.next_s()) == (1, 9.0)
    later.clear()
    assert later.next_s() is None


def test_an_entry_comes_again_for_any_of_its_messages() -> None:
    later = Later()
    for index in range(3):
        later.add(MessageId(1, 1, -1, index, 3), 1.0)
    later.drop(MessageId(1, 1, -1, 1, 3))
    assert later.take(1.0) == [Position(1, 1)]
    assert len(later) == 0


async def test_who_wants_room_for_many_is_not_overtaken_by_one() -> None:
    room = Room(10, MIB)
    assert room.try_take(100, 8)
    many = asyncio.ensure_future(room.take(100, 3))
    await asyncio.sleep(0)
    assert not many.done()
    assert not room.try_take(1)
    room.give_back(8, 100)
    await many
    assert (room.messages, room.bytes) == (3, 100)
    assert room.try_take(1, 7)
    assert not room.try_take(1)


async def test_more_than_all_the_room_comes_when_it_is_empty() -> None:
    room = Room(2, MIB)
    await room.take(100, 50)
    assert not room.try_take(1)
    room.give_back(50, 100)
    assert (room.messages, room.bytes) == (0, 0)
