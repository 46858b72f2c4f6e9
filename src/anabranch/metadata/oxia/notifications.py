"""What the server tells of one log entry of a shard, as changes in order. Pure."""

from typing import Final, NamedTuple

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.positions import Position, revision_of, seen_step
from anabranch.metadata.store import Event, EventKind, Revision

_KINDS: Final[dict[int, EventKind]] = {
    pb.KEY_CREATED: EventKind.CREATED,
    pb.KEY_MODIFIED: EventKind.MODIFIED,
    pb.KEY_DELETED: EventKind.DELETED,
}
PUTS: Final = (pb.KEY_CREATED, pb.KEY_MODIFIED)


class Told(NamedTuple):
    """One change of a log entry, so that changes sort as they were made: puts, then deletes."""

    removes: bool
    version: int
    order: str
    """The path with parents before children."""
    path: str
    kind: int


def is_pulse(batch: pb.NotificationBatch) -> bool:
    """Whether a log entry says no more than that a session lives. Pure."""
    return len(batch.notifications) == 1 and keys.is_pulse(batch.notifications[0].key)


def in_order(batch: pb.NotificationBatch) -> list[Told]:
    """The changes of one log entry in the order they were made. Pure."""
    told: list[Told] = []
    for entry in batch.notifications:
        path, value = entry.key, entry.value
        kind = value.type
        if keys.is_path(path) or kind == pb.KEY_RANGE_DELETED:
            removes = kind not in PUTS
            told.append(Told(removes, value.version_id, path.replace("/", "\x00"), path, kind))
    told.sort()
    return told


def events_of(
    epoch: int, offsets: tuple[int, ...], place: int, batch: pb.NotificationBatch
) -> list[Event] | None:
    """The changes of one log entry of one shard, seen at these offsets. Pure.

    None if a range was deleted: nobody says which keys were in it.
    """
    entries = in_order(batch)
    return events_at(epoch, offsets, place, batch.offset, entries)


def events_at(
    epoch: int, offsets: tuple[int, ...], place: int, offset: int, entries: list[Told]
) -> list[Event] | None:
    """As `events_of`, of changes that are in order already."""
    before, step = revision_of(epoch, Position(offsets, place)).index, seen_step(len(offsets))
    behind = revision_of(epoch, Position((*offsets[:place], offset, *offsets[place + 1 :])))
    events: list[Event] = []
    for number, entry in enumerate(entries, 1):
        kind = _KINDS.get(entry.kind)
        if kind is None:
            return None
        revision = Revision(epoch, before + number * step) if number < len(entries) else behind
        events.append(Event(kind, entry.path, revision))
    return events
