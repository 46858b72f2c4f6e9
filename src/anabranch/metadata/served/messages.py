"""The store's values as messages of the protocol, and back. Pure.

What comes from a peer is checked here for its shape, and by `operation_checks` for its sense.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError

from anabranch.errors import AnabranchError, ProtocolError
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.error_codes import code_of, error_of, path_of
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    Event,
    EventKind,
    Expected,
    Guard,
    IndexKey,
    Node,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    Stat,
    Version,
)

PROTOCOL: Final = 1
FEATURES: Final = frozenset({"sessions", "guards", "indexes", "copies"})
"""What a client may ask to be there."""
_KINDS: Final = {
    EventKind.CREATED: 1,
    EventKind.MODIFIED: 2,
    EventKind.DELETED: 3,
    EventKind.GAP: 4,
}
_KIND_OF: Final = {number: kind for kind, number in _KINDS.items()}


def parse(payload: bytes) -> pb.Frame:
    """Read a frame's message.

    Raises:
        ProtocolError: if it is none.
    """
    try:
        return pb.Frame.FromString(payload)
    except DecodeError as error:
        raise ProtocolError(f"a frame that is no message: {error}") from None


def error_message(error: AnabranchError) -> pb.Error:
    """An error as it is sent."""
    return pb.Error(code=code_of(error), message=str(error), path=path_of(error))


def error_from(message: pb.Error) -> AnabranchError:
    """Undo `error_message`."""
    return error_of(message.code, message.message, message.path)


def revision_message(revision: Revision) -> pb.Revision:
    """A revision as it is sent."""
    return pb.Revision(epoch=revision.epoch, index=revision.index)


def revision_from(message: pb.Revision) -> Revision:
    """Undo `revision_message`."""
    return Revision(message.epoch, message.index)


def version_message(version: Version) -> pb.Version:
    """A version as it is sent."""
    return pb.Version(epoch=version.epoch, native=version.native, life=version.life)


def version_from(message: pb.Version) -> Version:
    """Undo `version_message`."""
    return Version(message.epoch, message.native, message.life)


def stat_message(stat: Stat) -> pb.Stat:
    """A stat as it is sent."""
    return pb.Stat(
        path=stat.path,
        version=version_message(stat.version),
        revision=revision_message(stat.revision),
        created_ms=stat.created_ms,
        modified_ms=stat.modified_ms,
        ephemeral=stat.ephemeral,
        created_by_self=stat.created_by_self,
    )


def stat_from(message: pb.Stat) -> Stat:
    """Undo `stat_message`."""
    return Stat(
        message.path,
        version_from(message.version),
        revision_from(message.revision),
        message.created_ms,
        message.modified_ms,
        message.ephemeral,
        message.created_by_self,
    )


def node_message(node: Node) -> pb.Node:
    """A node as it is sent."""
    return pb.Node(value=node.value, stat=stat_message(node.stat))


def node_from(message: pb.Node) -> Node:
    """Undo `node_message`."""
    return Node(message.value, stat_from(message.stat))


def outcome_message(outcome: Outcome) -> pb.Outcome:
    """An outcome as it is sent."""
    if outcome is None:
        return pb.Outcome()
    if isinstance(outcome, AnabranchError):
        return pb.Outcome(error=error_message(outcome))
    return pb.Outcome(stat=stat_message(outcome))


def outcome_from(message: pb.Outcome) -> Outcome:
    """Undo `outcome_message`."""
    kind = message.WhichOneof("kind")
    if kind == "stat":
        return stat_from(message.stat)
    return error_from(message.error) if kind == "error" else None


def event_message(event: Event) -> pb.Event:
    """An event as it is sent."""
    return pb.Event(
        kind=_KINDS[event.kind], path=event.path, revision=revision_message(event.revision)
    )


def event_from(message: pb.Event) -> Event:
    """Undo `event_message`.

    Raises:
        ProtocolError: if it is of a kind this build does not know.
    """
    kind = _KIND_OF.get(message.kind)
    if kind is None:
        raise ProtocolError(f"an event of unknown kind {message.kind}")
    return Event(kind, message.path, revision_from(message.revision))


def index_messages(indexes: Iterable[IndexKey]) -> list[pb.IndexKey]:
    """Index keys as they are sent."""
    return [pb.IndexKey(index=entry.index, key=entry.key) for entry in indexes]


def indexes_from(messages: Iterable[pb.IndexKey]) -> tuple[IndexKey, ...]:
    """Undo `index_messages`."""
    return tuple(IndexKey(message.index, message.key) for message in messages)


def record_message(record: Record) -> pb.Record:
    """An exported node as it is sent."""
    return pb.Record(
        path=record.path,
        value=record.value,
        native_version=record.native_version,
        created_ms=record.created_ms,
        modified_ms=record.modified_ms,
        next_sequence=record.next_sequence,
        session=record.session,
        indexes=index_messages(record.indexes),
    )


def record_from(message: pb.Record) -> Record:
    """Undo `record_message`."""
    return Record(
        message.path,
        message.value,
        message.native_version,
        message.created_ms,
        message.modified_ms,
        message.next_sequence,
        message.session if message.HasField("session") else None,
        indexes_from(message.indexes),
    )


def _expected_message(expected: Expected) -> pb.Expected | None:
    if expected is ANY:
        return None
    if isinstance(expected, Version):
        return pb.Expected(version=version_message(expected))
    return pb.Expected(absent=True)


def _guard_message(guard: Guard | None) -> pb.Guard | None:
    if guard is None:
        return None
    return pb.Guard(path=guard.path, version=version_message(guard.version))


def operation_message(operation: Operation) -> pb.Operation:
    """An operation as it is sent."""
    expected = _expected_message(operation.expected)
    guard = _guard_message(operation.guard)
    if isinstance(operation, Delete):
        return pb.Operation(delete=pb.Delete(path=operation.path, expected=expected, guard=guard))
    put = pb.Put(
        path=operation.path,
        value=operation.value,
        expected=expected,
        ephemeral=operation.ephemeral,
        sequential=operation.sequential,
        indexes=index_messages(operation.indexes),
        guard=guard,
    )
    return pb.Operation(put=put)


def operation_from(message: pb.Operation) -> Operation:
    """Undo `operation_message`.

    Raises:
        ProtocolError: if it is of a kind this build does not know.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise ProtocolError("an operation of unknown kind")
    body = message.put if kind == "put" else message.delete
    expected: Expected = ANY
    if body.expected.HasField("version"):
        expected = version_from(body.expected.version)
    elif body.expected.absent:
        expected = ABSENT
    guard = None
    if body.HasField("guard"):
        guard = Guard(body.guard.path, version_from(body.guard.version))
    if isinstance(body, pb.Delete):
        return Delete(body.path, expected, guard)
    return Put(
        body.path,
        body.value,
        expected,
        body.ephemeral,
        body.sequential,
        indexes_from(body.indexes),
        guard,
    )
