"""The order of a key's messages while consumers come, go, stop and hand back: any history of them.

The model is a client per consumer that handles what it has in the order in which it came, one by
one, and acknowledges it. Whatever happens, the messages of a key are handled in their order; what
was handled and not acknowledged, because its consumer left, may be handled again.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.broker.consumer import Consumer, Delivery, KeySharing
from anabranch.broker.key_shared import KeySharedDispatcher
from anabranch.ids import Position
from anabranch.runtime.network import Buffer
from anabranch.wire import Decoder, EntryMetadata, Message, MessageMetadata, build_entry

KEYS = 6
ENTRIES = 60


class Client:
    """What a consumer has, in the order in which it came."""

    def __init__(self, name: str) -> None:
        self.writable = True
        self.messages_out = 0
        self.queue: list[int] = []
        self._decoder = Decoder()
        self.consumer = Consumer(
            self,
            consumer_id=1,
            name=name,
            priority=0,
            partition=-1,
            epoch=None,
            disconnect=lambda: None,
        )

    def write_out(self, parts: list[Buffer]) -> None:
        for command in self._decoder.feed(b"".join(parts)):
            assert type(command) is Message
            self.queue.append(command.entry_id)

    async def is_alive(self) -> bool:
        return True


def _entry(number: int) -> Delivery:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1, partition_key=f"k{number % KEYS}"
    )
    payload = build_entry(metadata, b"")
    return Delivery(Position(1, number), payload, 1, 0, None, EntryMetadata(metadata))


LOG = [_entry(number) for number in range(ENTRIES)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "permit", "handle", "acknowledge", "hand back", "send"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


class Shared:
    """A subscription by key with the clients around it."""

    def __init__(self) -> None:
        self.dispatcher = KeySharedDispatcher(KeySharing())
        self.clients: list[Client] = []
        self.read = 0
        self.handled: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        self.done: set[int] = set()
        self._names = 0

    def step(self, what: str, number: int) -> None:
        if what == "join":
            self._names += 1
            self.clients.append(Client(f"c{self._names}"))
            self.dispatcher.add(self.clients[-1].consumer)
            return
        if not self.clients:
            return
        client = self.clients[number % len(self.clients)]
        if what == "leave":
            self.clients.remove(client)
            if self.dispatcher.remove(client.consumer):
                self.read = 0
        elif what == "permit":
            client.consumer.permits += number
        elif what == "handle" and client.queue:
            self._handle(client, acknowledge=False)
        elif what == "acknowledge" and client.queue:
            self._handle(client, acknowledge=True)
        elif what == "hand back" and client.queue:
            # As clients do: all they have not handled comes again, none is kept.
            positions = [Position(1, each) for each in client.queue]
            client.queue.clear()
            self.dispatcher.redeliver(client.consumer, positions)
        self.send()

    def _handle(self, client: Client, *, acknowledge: bool) -> None:
        number = client.queue[0]
        self.handled[number % KEYS].append(number)
        if acknowledge:
            client.queue.pop(0)
            self.done.add(number)
            self.dispatcher.acknowledged(client.consumer, [Position(1, number)])

    def send(self) -> None:
        while wanted := self.dispatcher.entries_wanted():
            again = self.dispatcher.replays(wanted)
            if again:
                if not self.dispatcher.dispatch([LOG[each.entry_id] for each in again]):
                    return
                continue
            new = [each for each in LOG[self.read : self.read + wanted] if self._is_open(each)]
            if self.read >= ENTRIES:
                return
            taken = self.dispatcher.dispatch(new) if new else 0
            if taken < len(new):
                self.read = new[taken].position.entry_id
                return
            self.read = min(ENTRIES, self.read + wanted)

    def _is_open(self, delivery: Delivery) -> bool:
        return delivery.position.entry_id not in self.done


@pytest.mark.goal("core.B4", part="key_shared order", broken_by="hashes_move_undrained")
@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_each_key_is_handled_in_order(steps: list[tuple[str, int]]) -> None:
    shared = Shared()
    for what, number in (("join", 0), ("permit", 9), *steps):
        shared.step(what, number)
    if not shared.clients:
        shared.step("join", 0)
    for _ in range(ENTRIES * 3):
        for index in range(len(shared.clients)):
            shared.step("permit", 9)
            shared.clients[index].consumer.permits += 5
            shared.step("acknowledge", index)
    assert shared.done == set(range(ENTRIES)), "nothing is left behind"
    for key, numbers in shared.handled.items():
        seen = -1
        for number in numbers:
            expected = [n for n in range(key, ENTRIES, KEYS) if n > seen]
            assert number <= (expected[0] if expected else seen), (key, numbers)
            seen = max(seen, number)
