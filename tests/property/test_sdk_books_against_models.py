"""The SDK's books against simple models: batch acknowledgements, order in flight, room, packing."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.batch_acks import BatchAcks, acked_id
from anabranch.client.in_flight import InFlight, Op
from anabranch.client.packing import Outgoing, Packer, bits_of, unpack, words_of
from anabranch.client.room import Room
from anabranch.ids import Position
from anabranch.wire import AckedId
from anabranch.wire import Message as Delivered
from anabranch.wire.compression import COMPRESSIONS, compression_number

SIZES = [1, 3, 70, 64]
acknowledgements = st.tuples(st.integers(0, 3), st.integers(0, 69), st.booleans())


@given(st.lists(acknowledgements, max_size=80))
def test_an_entry_is_acknowledged_exactly_when_all_its_messages_are(
    acks: list[tuple[int, int, bool]],
) -> None:
    books = BatchAcks()
    left = {entry: set(range(size)) for entry, size in enumerate(SIZES)}
    for entry, index, cumulative in acks:
        if not left.get(entry):
            continue  # nobody has a message of it any more
        size = SIZES[entry]
        position = Position(1, entry)
        if cumulative:
            bits = books.acknowledge_cumulative(position, index % size, size)
            left = {known: rest for known, rest in left.items() if known >= entry}
            left[entry] -= set(range(index % size + 1))
        else:
            bits = books.acknowledge(position, index % size, size)
            left[entry].discard(index % size)
        told = acked_id(position, bits, size)
        if left[entry]:
            assert told.ack_set is not None
            assert bits_of(told.ack_set, size) == sum(1 << number for number in left[entry])
            assert told.batch_size == size
        else:
            assert told == AckedId(1, entry, None, None)
    partly = [entry for entry, rest in left.items() if 0 < len(rest) < SIZES[entry]]
    assert len(books) == len(partly), "whole and untouched entries cost no memory"


@given(st.sets(st.integers(0, 9)), st.integers(0, 9))
def test_a_batch_that_comes_again_is_what_the_broker_shows(shown: set[int], index: int) -> None:
    books = BatchAcks()
    books.acknowledge(Position(1, 0), 3, 10)
    bits = sum(1 << number for number in shown)
    books.delivered(Position(1, 0), 10, bits)
    assert books.acknowledge(Position(1, 0), index, 10) == bits & ~(1 << index)


@given(st.integers(0, 2**200))
def test_words_and_bits_agree(bits: int) -> None:
    words = words_of(bits)
    assert bits_of(words, 201) == bits
    assert all(-(2**63) <= word < 2**63 for word in words)


@given(st.lists(st.sampled_from(["add", "send", "receipt", "lose", "refuse"]), max_size=80))
def test_entries_leave_and_are_answered_in_order_whatever_happens(events: list[str]) -> None:
    flight: InFlight[int] = InFlight()
    next_id = 0
    wire: list[int] = []
    """What the present connection carried and was not answered."""
    answered: list[int] = []
    for event in events:
        if event == "add":
            flight.add(
                Op(b"", next_id, next_id, [next_id], is_batch=False, room_bytes=1, deadline_s=0)
            )
            next_id += 1
        elif event == "send" and (op := flight.next_to_send()) is not None:
            assert not wire or op.sequence_id > wire[-1]
            wire.append(op.sequence_id)
        elif event == "receipt" and wire:
            first = wire.pop(0)
            found = flight.receipt(first)
            assert found is not None
            assert found.sequence_id == first
            answered.append(first)
        elif event == "refuse" and wire:
            last = wire.pop()
            assert flight.refused(last) is not None
            answered.append(last)
        elif event == "lose":
            flight.connection_lost()
            wire = []
    left = [op.sequence_id for op in flight.give_up()]
    assert sorted(answered + left) == list(range(next_id))
    assert left == sorted(left)


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "back", "cancel", "turn"]), st.integers(1, 60)),
        max_size=60,
    )
)
def test_room_is_bounded_and_never_lost(events: list[tuple[str, int]]) -> None:
    async def play() -> None:
        room = Room(3, 100)
        order: list[int] = []
        held: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        async def take(number: int, size: int) -> None:
            await room.take(size)
            order.append(number)
            held.append(size)

        for event, size in events:
            if event == "take":
                tasks.append(asyncio.create_task(take(len(tasks), size)))
            elif event == "back" and held:
                room.give_back(1, held.pop(0))
            elif event == "cancel" and tasks:
                tasks[size % len(tasks)].cancel()
            else:
                await asyncio.sleep(0)
            assert room.messages <= 3
            assert room.messages <= 1 or room.bytes <= 100
        while len(order) < sum(not task.cancelled() for task in tasks) or held:
            await asyncio.sleep(0)
            if held:
                room.give_back(1, held.pop(0))
            if all(task.done() for task in tasks) and not held:
                break
        assert order == sorted(order)
        assert (room.messages, room.bytes) == (0, 0)
        assert all(task.done() for task in tasks)

    asyncio.run(play())


texts = st.text(max_size=8)
messages = st.builds(
    Outgoing,
    st.none() | st.binary(max_size=60),
    st.none() | texts | st.binary(max_size=8),
    st.none() | st.binary(max_size=8),
    st.none() | st.dictionaries(texts, texts, max_size=3),
    st.none() | st.integers(1, 2**60),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**60),
)


@given(st.lists(messages, min_size=1, max_size=8), st.sampled_from(COMPRESSIONS), st.booleans())
def test_any_message_survives_packing(batch: list[Outgoing], compression: str, alone: bool) -> None:
    packer = Packer(compression_number(compression))  # type: ignore[arg-type]
    packer.producer_name = "p"
    entry = packer.single(batch[0], 1) if alone else packer.batch(batch, 1)
    shown = unpack(Delivered(1, 2, 3, -1, 0, None, None, memoryview(entry)), "t")
    for sent, got in zip(batch[:1] if alone else batch, shown, strict=True):
        assert got.value == (sent.value or b"")
        assert got.is_null == (sent.value is None)
        key = sent.key.encode() if isinstance(sent.key, str) else sent.key
        assert got.key_bytes == key
        assert got.ordering_key == sent.ordering_key
        assert got.properties == (sent.properties or {})
        assert got.event_time_ms == sent.event_time_ms
        assert got.sequence_id == sent.sequence_id
