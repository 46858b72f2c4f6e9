"""Chunks on a shared subscription: whoever gets the first gets them all."""

import pytest
from members import Member

from anabranch.broker.consumer import Delivery
from anabranch.broker.dispatch import SharedDispatcher
from anabranch.ids import Position
from anabranch.wire import EntryMetadata, MessageMetadata, build_entry


def chunks(first: int, uuid: str, count: int, step: int = 1) -> list[Delivery]:
    made = []
    for chunk in range(count):
        number = first + chunk * step
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=1,
            publish_time=1,
            uuid=uuid,
            chunk_id=chunk,
            num_chunks_from_msg=count,
        )
        payload = build_entry(metadata, b"%s%d" % (uuid.encode(), chunk))
        made.append(Delivery(Position(1, number), payload, 1, 0, None, EntryMetadata(metadata)))
    return made


@pytest.mark.goal("core.B2", part="chunking", broken_by="chunks_go_to_anybody")
def test_chunks_of_one_message_go_to_one_consumer() -> None:
    dispatcher = SharedDispatcher()
    members = [Member("a"), Member("b")]
    for member in members:
        dispatcher.add(member)
    messages = [chunks(number, f"m{number}-", 3, step=9) for number in range(9)]
    for delivery in sorted(each for message in messages for each in message):
        assert dispatcher.dispatch([delivery]) == 1
    for number in range(9):
        wanted = [b"m%d-%d" % (number, chunk) for chunk in range(3)]
        got = [[each for each in member.got if each in wanted] for member in members]
        assert sorted(got) == [[], wanted]
    assert sorted(len(member.got) for member in members) == [12, 15], "messages still go round"


def test_a_chunk_whose_consumer_is_full_holds_up_nobody() -> None:
    dispatcher = SharedDispatcher()
    full, other = Member("a", permits=1), Member("b", permits=0)
    dispatcher.add(full)
    dispatcher.add(other)
    first, second = chunks(0, "m", 2)
    assert dispatcher.dispatch([first]) == 1
    other.permits = 10
    plain = Delivery(Position(1, 2), build_entry(_plain(), b"x"), 1, 0, None)
    assert dispatcher.dispatch([second, plain]) == 2
    assert (full.got, other.got) == ([b"m0"], [b"x"])
    assert dispatcher.knows(second.position)
    assert dispatcher.entries_wanted() > 0
    assert dispatcher.replays(10) == []
    full.permits = 1
    assert dispatcher.entries_wanted() > 0
    assert dispatcher.replays(10) == [second.position]
    assert dispatcher.dispatch([second]) == 1
    assert full.got == [b"m0", b"m1"]


def test_what_a_leaver_had_begun_begins_again_with_another() -> None:
    dispatcher = SharedDispatcher()
    leaver, other = Member("a", permits=1), Member("b", permits=0)
    dispatcher.add(leaver)
    dispatcher.add(other)
    message = chunks(0, "m", 3)
    assert dispatcher.dispatch(message[:1]) == 1
    other.permits = 10
    assert dispatcher.dispatch(message[1:2]) == 1, "set aside"
    dispatcher.remove(leaver)
    assert dispatcher.replays(10) == [Position(1, 0), Position(1, 1)]
    assert dispatcher.dispatch(message) == 3
    assert other.got == [b"m0", b"m1", b"m2"]


def _plain() -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=9, publish_time=1)
