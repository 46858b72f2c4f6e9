"""The entries of a producer that are not answered yet: what was sent, what is to be sent. Pure.

Order is everything here. Entries leave in the order in which they came, are answered in that order,
and after a lost connection they leave in that order once more.
"""

from collections import deque
from typing import Generic, TypeVar

from anabranch.client.chunks import SentChunks
from anabranch.errors import ProtocolError

W = TypeVar("W")


class Op(Generic[W]):
    """One entry on its way, and who waits for each message in it or for all of them."""

    __slots__ = (
        "chunks", "count", "deadline_s", "entry", "highest_sequence_id", "is_batch", "room_bytes",
        "sequence_id", "tries", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        entry: bytes,
        sequence_id: int,
        highest_sequence_id: int,
        waiters: list[W],
        *,
        is_batch: bool,
        room_bytes: int,
        deadline_s: float,
        count: int | None = None,
        chunks: SentChunks | None = None,
    ) -> None:
        self.entry = entry
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        self.waiters = waiters
        self.count = len(waiters) if count is None else count
        """How many messages it is of."""
        self.chunks = chunks
        """Of a chunk: what is known of all the chunks of its message."""
        self.is_batch = is_batch
        self.room_bytes = room_bytes
        self.deadline_s = deadline_s
        self.tries = 0
        """How often it was handed to a connection. At 0 nobody can have stored it."""


class InFlight(Generic[W]):
    """Entries in the order of their sequence ids; the sent ones before the unsent."""

    def __init__(self) -> None:
        self._sent: deque[Op[W]] = deque()
        self._unsent: deque[Op[W]] = deque()

    def __len__(self) -> int:
        return len(self._sent) + len(self._unsent)

    @property
    def oldest(self) -> Op[W] | None:
        """The entry that has waited longest."""
        if self._sent:
            return self._sent[0]
        return self._unsent[0] if self._unsent else None

    def add(self, op: Op[W]) -> None:
        """Take an entry that is to be sent."""
        self._unsent.append(op)

    def next_to_send(self) -> Op[W] | None:
        """The next entry for the connection; it counts as sent from now on."""
        if not self._unsent:
            return None
        op = self._unsent.popleft()
        op.tries += 1
        self._sent.append(op)
        return op

    def connection_lost(self) -> None:
        """Everything has to be sent again."""
        while self._sent:
            self._unsent.appendleft(self._sent.pop())

    def receipt(self, sequence_id: int) -> Op[W] | None:
        """The entry that a receipt answers; None if it was answered or given up before.

        Raises:
            ProtocolError: if an earlier entry is not answered yet.
        """
        if not self._sent or sequence_id < self._sent[0].sequence_id:
            return None
        op = self._sent[0]
        if op.sequence_id != sequence_id:
            raise ProtocolError(f"receipt of {sequence_id} came before the one of {op.sequence_id}")
        return self._sent.popleft()

    def refused(self, sequence_id: int) -> Op[W] | None:
        """The entry that a refusal answers; it may overtake the receipts of those before."""
        for op in self._sent:
            if sequence_id in (op.sequence_id, op.highest_sequence_id):
                self._sent.remove(op)
                return op
        return None

    def expired(self, now_s: float) -> list[Op[W]]:
        """Give up the entries whose time is over."""
        given_up = []
        for queue in (self._sent, self._unsent):
            while queue and queue[0].deadline_s <= now_s:
                given_up.append(queue.popleft())
        return given_up

    def give_up(self) -> list[Op[W]]:
        """Give up all of them."""
        given_up = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        return given_up
