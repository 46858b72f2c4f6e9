"""What one shard of the modelled Oxia keeps: records, and what was told of each log entry. Pure."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.keys import (
    INTERNAL,
    LAST_VERSION,
    SESSIONS,
    notifications_at,
    server_order,
)

_ABSENT: Final = -1
_INDEXES: Final = f"{INTERNAL}idx/"
_NOTIFICATIONS: Final = notifications_at(0)[0].removesuffix(f"{0:016x}")


def session_key(session: int) -> str:
    """Where a session is kept."""
    return f"{SESSIONS[0]}{session:016x}"


class _Stored:
    """One record."""

    __slots__ = ("index_keys", "value", "version")

    def __init__(self, value: bytes, version: pb.Version, index_keys: list[str]) -> None:
        self.value = value
        self.version = version
        self.index_keys = index_keys


class ModelShard:
    """The state after some log entries."""

    def __init__(self, number: int, numbers_given: int = 0) -> None:
        self.number = number
        self.batches: list[pb.NotificationBatch] = []
        """By offset, what was told of each entry."""
        self.kept_from = 0
        """Of earlier entries, nobody remembers what was told."""
        self.sessions: dict[int, int] = {}
        """The sessions that live, with their timeouts in milliseconds."""
        self._records: dict[str, _Stored] = {}
        self._order: list[tuple[tuple[int, bytes], str]] = []
        self._last_version = numbers_given - 1
        self._told: dict[str, pb.Notification] = {}

    # --- writing ------------------------------------------------------------------------------

    def write(self, request: pb.WriteRequest, wall_ms: int) -> pb.WriteResponse:
        """Carry out one entry of the log."""
        self._told = {}
        answer = pb.WriteResponse(
            puts=[self._put(put, wall_ms) for put in request.puts],
            deletes=[self._delete(delete) for delete in request.deletes],
            delete_ranges=[self._delete_range(each) for each in request.delete_ranges],
        )
        self._finish(wall_ms)
        return answer

    def open_session(self, timeout_ms: int, identity: str, wall_ms: int) -> int:
        """Begin a session; its number is that of the entry."""
        self._told = {}
        session = len(self.batches)
        metadata = pb.SessionMetadata(timeout_ms=timeout_ms, identity=identity)
        self.sessions[session] = timeout_ms
        self._store(session_key(session), _Stored(metadata.SerializeToString(), pb.Version(), []))
        self._finish(wall_ms)
        return session

    def close_session(self, session: int, wall_ms: int) -> None:
        """End a session, with all that it owns."""
        self._told = {}
        owned = [
            key
            for key, stored in self._records.items()
            if stored.version.HasField("session_id") and stored.version.session_id == session
        ]
        del self.sessions[session]
        for key in owned:
            self._remove(key)
        self._remove(session_key(session))
        self._finish(wall_ms)

    def _finish(self, wall_ms: int) -> None:
        entries = [pb.NotificationEntry(key=key, value=told) for key, told in self._told.items()]
        self.batches.append(
            pb.NotificationBatch(
                shard=self.number,
                offset=len(self.batches),
                timestamp=wall_ms,
                notifications=entries,
            )
        )

    def _put(self, put: pb.PutRequest, wall_ms: int) -> pb.PutResponse:
        if put.sequence_key_delta:
            raise NotImplementedError("sequences that the server counts are not modelled")
        old = self._records.get(put.key)
        if not _as_expected(put, old):
            return pb.PutResponse(status=pb.UNEXPECTED_VERSION_ID)
        if put.HasField("session_id") and put.session_id not in self.sessions:
            return pb.PutResponse(status=pb.SESSION_DOES_NOT_EXIST)
        if put.HasField("override_version_id"):
            version_id = put.override_version_id
        else:
            self._last_version += 1
            version_id = self._last_version
        changes = 0 if old is None else old.version.modifications_count + 1
        if put.HasField("override_modifications_count"):
            changes = put.override_modifications_count
        version = pb.Version(
            version_id=version_id,
            modifications_count=changes,
            created_timestamp=wall_ms if old is None else old.version.created_timestamp,
            modified_timestamp=wall_ms,
        )
        if put.HasField("session_id"):
            version.session_id = put.session_id
            version.client_identity = put.client_identity
        self._remove_quietly(put.key)
        index_keys = [
            f"{_INDEXES}{index.index_name}/{index.secondary_key}\x01{quote(put.key, safe='')}"
            for index in put.secondary_indexes
        ]
        self._store(put.key, _Stored(put.value, version, index_keys))
        self._told.pop(put.key, None)
        kind = pb.KEY_MODIFIED if changes else pb.KEY_CREATED
        self._told[put.key] = pb.Notification(type=kind, version_id=version_id)
        return pb.PutResponse(status=pb.OK, version=version)

    def _delete(self, delete: pb.DeleteRequest) -> pb.DeleteResponse:
        old = self._records.get(delete.key)
        if old is None:
            return pb.DeleteResponse(status=pb.KEY_NOT_FOUND)
        if not _as_expected(delete, old):
            return pb.DeleteResponse(status=pb.UNEXPECTED_VERSION_ID)
        self._remove(delete.key)
        return pb.DeleteResponse(status=pb.OK)

    def _delete_range(self, wanted: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
        for key in list(self.keys(wanted.start_inclusive, wanted.end_exclusive)):
            self._remove_quietly(key)
        self._told[wanted.start_inclusive] = pb.Notification(
            type=pb.KEY_RANGE_DELETED, key_range_last=wanted.end_exclusive
        )
        return pb.DeleteRangeResponse(status=pb.OK)

    def _store(self, key: str, stored: _Stored) -> None:
        self._records[key] = stored
        for each in (key, *stored.index_keys):
            insort(self._order, (server_order(each), each))

    def _remove(self, key: str) -> None:
        self._remove_quietly(key)
        if not key.startswith(INTERNAL):
            self._told.pop(key, None)
            self._told[key] = pb.Notification(type=pb.KEY_DELETED)

    def _remove_quietly(self, key: str) -> None:
        stored = self._records.pop(key, None)
        if stored is not None:
            for each in (key, *stored.index_keys):
                place = bisect_left(self._order, (server_order(each), each))
                assert self._order[place][1] == each
                del self._order[place]

    # --- reading ------------------------------------------------------------------------------

    def get(self, wanted: pb.GetRequest) -> pb.GetResponse:
        """Look up one key."""
        if wanted.comparison != pb.EQUAL:
            raise NotImplementedError("looking for neighbours is not modelled")
        if wanted.key == LAST_VERSION and self._last_version >= 0:
            return pb.GetResponse(
                status=pb.OK, value=str(self._last_version).encode(), version=pb.Version()
            )
        stored = self._records.get(wanted.key)
        if stored is None:
            return pb.GetResponse(status=pb.KEY_NOT_FOUND)
        answer = pb.GetResponse(status=pb.OK, version=stored.version)
        if wanted.include_value:
            answer.value = stored.value
        return answer

    def record(self, key: str) -> pb.GetResponse:
        """A record that is there, with its key."""
        stored = self._records[key]
        return pb.GetResponse(status=pb.OK, version=stored.version, value=stored.value, key=key)

    def keys(self, start: str, end: str, *, internal: bool = False) -> Iterator[str]:
        """The keys in a range, in order."""
        if internal and start.startswith(_NOTIFICATIONS):
            yield from self._batch_keys(start, end)
            return
        place = bisect_left(self._order, (server_order(start), ""))
        last = server_order(end) if end else None
        while place < len(self._order):
            order, key = self._order[place]
            if last is not None and order >= last:
                return
            if internal or not key.startswith(INTERNAL):
                yield key
            place += 1

    def _batch_keys(self, start: str, end: str) -> Iterator[str]:
        first = max(int(start.removeprefix(_NOTIFICATIONS), 16), self.kept_from)
        last = min(int(end.removeprefix(_NOTIFICATIONS), 16), len(self.batches))
        for offset in range(first, last):
            yield f"{_NOTIFICATIONS}{offset:016x}"


def _as_expected(wanted: pb.PutRequest | pb.DeleteRequest, old: _Stored | None) -> bool:
    if not wanted.HasField("expected_version_id"):
        return True
    if old is None:
        return wanted.expected_version_id == _ABSENT
    return wanted.expected_version_id == old.version.version_id
