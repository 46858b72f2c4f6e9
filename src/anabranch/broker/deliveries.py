"""What is sent of an entry that was read, and what an acknowledgement takes away."""

from collections.abc import Sequence
from typing import Final

from anabranch import limits
from anabranch.broker.claimed_numbers import believable_messages
from anabranch.broker.consumer import Consumer, Delivery
from anabranch.broker.delayed import Delaying
from anabranch.broker.dispatch import Dispatcher
from anabranch.broker.limits import BATCH_MESSAGES_MAX
from anabranch.broker.subscription_types import IN_ORDER
from anabranch.broker.visibility import Visibility
from anabranch.errors import ProtocolError
from anabranch.ids import Position, new_position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger import Cursor, ManagedLedger
from anabranch.runtime.network import Buffer
from anabranch.wire import CUMULATIVE, Ack, EntryMetadata, read_metadata

_new_tuple: Final = tuple.__new__
"""A NamedTuple's own constructor is a Python function; this one is not."""


def first_deliveries(
    entries: Sequence[Entry],
    cursor: Cursor,
    visibility: Visibility,
    dispatcher: Dispatcher,
    delaying: Delaying,
) -> tuple[list[Delivery], Position | None]:
    """What to send of entries that were read one after the other.

    What one answer settles for all of them is asked once: an entry with nothing special about it
    costs few questions.

    Returns:
        The deliveries, and up to where nothing is left to look at; None if that is nowhere.
    """
    last_readable = visibility.last_readable()
    first = entries[0]
    is_usual = (
        visibility.shows_plain
        and not delaying.is_reading_again
        and cursor.is_untouched_from(Position(first.ledger_id, first.entry_id))
    )
    deliveries: list[Delivery] = []
    passed = None
    for ledger_id, entry_id, payload in entries:
        position = new_position((ledger_id, entry_id))
        if position > last_readable:
            break
        passed = position
        metadata = _metadata_of(payload)
        if is_usual and metadata is not None and metadata.is_plain:
            count, again = metadata.message_count, dispatcher.redelivery_count(position)
            if not 0 < count <= BATCH_MESSAGES_MAX:
                count = believable_messages(count)
            values = (position, payload, count, again, None, metadata, True)
            deliveries.append(_new_tuple(Delivery, values))
            continue
        if delaying.is_reading_again and delaying.passes(position, dispatcher):
            continue
        delivery = _delivery_of(position, payload, metadata, cursor, visibility, dispatcher)
        if delivery is None or (dispatcher.delays and delaying.keeps(delivery)):
            continue
        deliveries.append(delivery)
    return deliveries, passed


def _metadata_of(payload: Buffer) -> EntryMetadata | None:
    try:
        return read_metadata(payload)
    except ProtocolError:
        return None


def _delivery_of(
    position: Position,
    payload: Buffer,
    metadata: EntryMetadata | None,
    cursor: Cursor,
    visibility: Visibility,
    dispatcher: Dispatcher,
) -> Delivery | None:
    """What to send of an entry; None if it is acknowledged or hidden."""
    if cursor.is_acknowledged(position):
        return None
    if metadata is None:
        # Stored bytes that are no message: clients name them as corrupt and acknowledge.
        return Delivery(position, payload, 1, 0, None)
    if visibility.hides(position, metadata):
        cursor.acknowledge([position])
        return None
    ack_set = cursor.pending_bits(position)
    messages = believable_messages(metadata.message_count)
    if ack_set is not None:
        messages = _bit_count(ack_set)
    again = dispatcher.redelivery_count(position)
    return Delivery(position, payload, messages, again, ack_set, metadata)


def replayed(
    entries: Sequence[Entry],
    replays: Sequence[Position],
    cursor: Cursor,
    visibility: Visibility,
    dispatcher: Dispatcher,
) -> list[Delivery]:
    """What to send again of entries that were read for it; the dispatcher forgets the others."""
    found = {Position(entry.ledger_id, entry.entry_id): entry for entry in entries}
    deliveries: list[Delivery] = []
    for position in replays:
        entry = found.get(position)
        delivery = None
        if entry is not None:
            metadata = _metadata_of(entry.payload)
            delivery = _delivery_of(
                position, entry.payload, metadata, cursor, visibility, dispatcher
            )
        if delivery is not None:
            deliveries.append(delivery)
        elif entry is not None or position < max(found):
            dispatcher.drop_replay(position)  # acknowledged meanwhile, or trimmed away
    return deliveries


def take_over(ack: Ack, consumer: Consumer, cursor: Cursor, dispatcher: Dispatcher) -> None:
    """Let acknowledgements count for the cursor and for what consumers hold.

    Raises:
        InputError: if it names what cannot be; nothing was changed by that name.
    """
    if ack.ack_type == CUMULATIVE:
        # Others have no order in which "up to here" would mean anything.
        if len(ack.message_ids) == 1 and dispatcher.type_number in IN_ORDER:
            acked = ack.message_ids[0]
            position = Position(acked.ledger_id, acked.entry_id)
            cursor.acknowledge_cumulative(position, acked.ack_set)
        return
    whole = []
    for ledger_id, entry_id, ack_set, _ in ack.message_ids:
        position = new_position((ledger_id, entry_id))
        if not ack_set or cursor.acknowledge_batch(position, ack_set):
            whole.append(position)
        elif pending := cursor.pending_bits(position):
            dispatcher.partly_acknowledged(consumer, position, _bit_count(pending))
    cursor.acknowledge(whole)
    dispatcher.acknowledged(consumer, whole)


def _bit_count(words: Sequence[int]) -> int:
    return sum((word & 0xFFFFFFFFFFFFFFFF).bit_count() for word in words)


def cached_replays(
    ledger: ManagedLedger, positions: list[Position]
) -> tuple[list[Entry] | None, list[Position]]:
    """Read entries at the front of some positions from the cache, across gaps between them.

    Returns:
        The entries, and for which of the positions; None, and the first run without a gap, if they
        must be read from storage.
    """
    entries: list[Entry] = []
    size = covered = 0
    while covered < len(positions) and size < limits.READ_BATCH_BYTES_MAX:
        run = _leading_run(positions[covered:])
        found = ledger.read_cached(run[0], len(run), limits.READ_BATCH_BYTES_MAX - size)
        if not found:
            break
        entries += found
        size += sum(len(entry.payload) for entry in found)
        covered += len(run)
        if len(found) < len(run):
            break  # what is missing here must not be taken for something that is gone
    if entries:
        return entries, positions[:covered]
    run = _leading_run(positions)
    return ledger.read_cached(run[0], len(run), limits.READ_BATCH_BYTES_MAX), run


def _leading_run(positions: list[Position]) -> list[Position]:
    """The positions at the front that follow each other without a gap: one read gets them."""
    for count, position in enumerate(positions):
        if position != Position(positions[0].ledger_id, positions[0].entry_id + count):
            return positions[:count]
    return positions
