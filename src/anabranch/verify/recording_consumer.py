"""A consumer of the SDK that puts on record what it is given and what it says.

It claims an acknowledgement as confirmed only where no copy of the message can be under way that
the broker sent before it had the acknowledgement; this keeps rule C5 free of false alarms.
"""

from collections.abc import Callable

from anabranch.client import BrokerRefused, Consumer, Message, MessageId
from anabranch.errors import AnabranchError, Corruption, FormatError, OutcomeUnknown
from anabranch.ids import Position
from anabranch.verify import payload
from anabranch.verify.records import (
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    REDELIVERY_ASKED,
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    Event,
    Outcome,
    Place,
    Record,
    SubscriptionType,
)


def place_of(message_id: MessageId) -> Place:
    """Where a message is, in the words of a history."""
    partition = message_id.partition
    return Place(partition, message_id.ledger_id, message_id.entry_id, message_id.batch_index)


class RecordingConsumer:
    """One consumer and its history."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        name: str,
        kind: SubscriptionType,
        run: str,
        add: Callable[[Record], None],
        now_s: Callable[[], float],
        knows_batch_index: bool,
    ) -> None:
        """`knows_batch_index`: whether the broker keeps what is done of a batch."""
        self.consumer = consumer
        self.sub = consumer.subscription
        self._name = name
        self._run = run
        self._add = add
        self._now_s = now_s
        self._knows_batch_index = knows_batch_index
        self._drops_stale = kind is not SubscriptionType.SHARED
        self._attachments = consumer.attachments
        self._is_cut_off = False
        self._asked = 0
        self._is_asking = False
        self._stale_left = 0
        self._doubtful: set[MessageId] = set()
        self._refused: set[Position] = set()
        """Entries asked for once more: the rest of their batch will come again too."""
        self._parts: dict[tuple[int, int, int], set[int]] = {}

    # --- receiving ---------------------------------------------------------------------------

    async def receive(self) -> tuple[Message, payload.Payload | None]:
        """Return the next message and what it says of itself, both on record."""
        message = await self.consumer.receive()
        return message, self.record(message)

    def record(self, message: Message) -> payload.Payload | None:
        """Put a message on record that the consumer has just handed out."""
        self.note_connection()
        self._note_doubt(message)
        place = place_of(message.id)
        try:
            found = payload.parse(message.value)
            if found.run != self._run:
                raise FormatError(f"it is of run {found.run}")
            if message.key != found.key:
                raise FormatError(f"its key is {message.key!r}, that of its payload {found.key!r}")
        except (Corruption, FormatError) as error:
            self._add(Damaged(self.sub, self._name, place, str(error)))
            return None
        except AnabranchError as error:
            self._add(Damaged(self.sub, self._name, place, f"it cannot be read: {error}"))
            return None
        identity = (found.producer, found.epoch, found.seq)
        self._add(Delivery(self.sub, self._name, *identity, found.key, found.checksum, place))
        return found

    def _note_doubt(self, message: Message) -> None:
        """A message that was under way when redelivery was asked for will come once more."""
        if self._is_asking or message.id.position in self._refused:
            self._doubtful.add(message.id)
        elif self._stale_left:
            self._stale_left -= 1
            self._doubtful.add(message.id)

    # --- acknowledging -----------------------------------------------------------------------

    async def acknowledge(self, message_id: MessageId, *, cumulative: bool = False) -> Outcome:
        """Acknowledge, wait for the answer, and put the outcome on record."""
        asked = self._asked
        outcome = Outcome.UNKNOWN
        try:
            await self.consumer.acknowledge(message_id, cumulative=cumulative, wait=True)
            outcome = Outcome.OK
        except (OutcomeUnknown, BrokerRefused):
            pass  # a refused one may become durable with a later one
        finally:
            # Also when the caller waits no longer: nobody knows whether the broker has it.
            self._answered(message_id, asked, outcome, cumulative=cumulative)
        return outcome

    async def acknowledge_soon(self, message_id: MessageId, *, cumulative: bool = False) -> None:
        """Acknowledge without waiting; nobody learns whether the broker got it."""
        self._answered(message_id, None, Outcome.UNKNOWN, cumulative=cumulative)
        await self.consumer.acknowledge(message_id, cumulative=cumulative)

    def _answered(
        self, message_id: MessageId, asked: int | None, outcome: Outcome, *, cumulative: bool
    ) -> None:
        self.note_connection()
        if outcome is Outcome.OK and asked == self._asked and self._is_asking:
            # The answer came after all that was sent before the broker knew of the question.
            self._is_asking = False
            self._stale_left = self.consumer.queued_messages
        kind = AckKind.CUMULATIVE if cumulative else AckKind.INDIVIDUAL
        places: tuple[Place, ...] = (place_of(message_id),)
        if message_id in self._doubtful:
            self._doubtful.discard(message_id)
            outcome = Outcome.UNKNOWN
        elif outcome is Outcome.OK and message_id.batch_size and not self._knows_batch_index:
            places = self._whole_entry(message_id, cumulative=cumulative)
            outcome = Outcome.OK if places else Outcome.UNKNOWN
        self._add(Ack(self.sub, self._name, kind, outcome, places or (place_of(message_id),)))

    def _whole_entry(self, message_id: MessageId, *, cumulative: bool) -> tuple[Place, ...]:
        """The places that are confirmed now, of a batch that counts only as a whole."""
        place = place_of(message_id)
        size = message_id.batch_size
        if cumulative:
            return (place,) if message_id.batch_index == size - 1 else ()
        entry = (place.partition, place.ledger, place.entry)
        done = self._parts.setdefault(entry, set())
        done.add(message_id.batch_index)
        if len(done) < size:
            return ()
        del self._parts[entry]
        return tuple(place._replace(batch=index) for index in range(size))

    # --- having again ------------------------------------------------------------------------

    def redeliver(self) -> None:
        """Ask for everything unacknowledged once more."""
        self._note_asking()
        if not self._drops_stale:
            self._asked += 1
            self._is_asking = True
        self.consumer.redeliver()

    def negative_acknowledge(self, message_id: MessageId, *, delay_s: float) -> None:
        """Ask for one message of a shared subscription once more, after a delay."""
        assert not self._drops_stale, "an ordered subscription has all its messages again"
        self._note_asking()
        self._refused.add(message_id.position)
        self.consumer.negative_acknowledge(message_id, delay_s=delay_s)

    def _note_asking(self) -> None:
        self._add(Event(REDELIVERY_ASKED, self._name, sub=self.sub))
        self._parts.clear()

    # --- what else is on record --------------------------------------------------------------

    async def snapshot(self) -> None:
        """Put on record where the broker says the cursor is, if it answers."""
        asked = self._now_s()
        try:
            _, mark_delete = await self.consumer.last_message_id()
        except (OutcomeUnknown, BrokerRefused):
            return
        if mark_delete is not None:
            place = Place(-1, mark_delete.ledger_id, mark_delete.entry_id, -1)
            self._add(CursorAt(self.sub, place, asked))

    def note_connection(self) -> None:
        """Put a lost or restored connection on record."""
        is_new = self.consumer.attachments != self._attachments
        is_cut_off = not self.consumer.is_connected
        if (is_cut_off and not self._is_cut_off) or (is_new and not self._is_cut_off):
            self._add(Event(CONSUMER_CONNECTION_LOST, self._name, sub=self.sub))
            # What was under way is lost with the connection, and comes again as a whole.
            self._is_asking, self._stale_left = False, 0
            self._doubtful.clear()
            self._refused.clear()
            self._parts.clear()
        if not is_cut_off and (is_new or self._is_cut_off):
            self._add(Event(CONNECTION_RESTORED, self._name, sub=self.sub))
            self._attachments = self.consumer.attachments
        self._is_cut_off = is_cut_off
