"""How operations become requests to a shard and find their answers; which may go together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.errors import ProtocolError
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.batching import groups
from anabranch.metadata.oxia.nodes import found_from_version, mismatch, stat_from
from anabranch.metadata.oxia.notifications import events_of, in_order
from anabranch.metadata.oxia.positions import Position, revision_of
from anabranch.metadata.oxia.requests import WriteQueue, parse
from anabranch.metadata.oxia.sessions import SharedLease, identity_of, session_of
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    EventKind,
    Guard,
    Operation,
    Put,
    Revision,
    Version,
)


def put(key: str, value: bytes = b"") -> pb.PutRequest:
    return pb.PutRequest(key=key, value=value)


def keys_of(request: pb.WriteRequest | None) -> tuple[list[str], list[str]]:
    assert request is not None
    return [item.key for item in request.puts], [item.key for item in request.deletes]


class TestWriteQueue:
    def test_what_waits_goes_together(self) -> None:
        queue = WriteQueue(5)
        for key in ("/a", "/b"):
            queue.add(put(key), key)
        queue.add(pb.DeleteRequest(key="/c"), "/c")
        request = queue.take()
        assert keys_of(request) == (["/a", "/b"], ["/c"])
        assert request is not None
        assert request.shard == 5
        assert queue.take() is None
        answers = queue.answered(
            pb.WriteResponse(
                puts=[pb.PutResponse(), pb.PutResponse(status=pb.UNEXPECTED_VERSION_ID)],
                deletes=[pb.DeleteResponse(status=pb.KEY_NOT_FOUND)],
            )
        )
        assert [(item.owner, answer.status) for item, answer in answers] == [
            ("/a", pb.OK),
            ("/b", pb.UNEXPECTED_VERSION_ID),
            ("/c", pb.KEY_NOT_FOUND),
        ]

    def test_nothing_is_overtaken_and_no_node_is_touched_twice(self) -> None:
        queue = WriteQueue(0)
        for operation in (put("/a"), put("/a"), pb.DeleteRequest(key="/b"), put("/c")):
            queue.add(operation, None)
        assert keys_of(queue.take()) == (["/a"], [])
        assert keys_of(queue.take()) == (["/a"], ["/b"])
        assert keys_of(queue.take()) == (["/c"], [])

    def test_other_keys_may_be_touched_twice(self) -> None:
        queue = WriteQueue(0)
        for _ in range(3):
            queue.add(put("a-count"), None)
        assert keys_of(queue.take()) == (["a-count"] * 3, [])

    def test_requests_are_bounded(self) -> None:
        queue = WriteQueue(0)
        for i in range(limits.OXIA_REQUEST_OPERATIONS_MAX + 1):
            queue.add(put(f"/{i}"), None)
        assert len(keys_of(queue.take())[0]) == limits.OXIA_REQUEST_OPERATIONS_MAX
        assert len(keys_of(queue.take())[0]) == 1
        half = b"x" * (limits.OXIA_REQUEST_BYTES_MAX // 2)
        for i in range(3):
            queue.add(put(f"/{i}", half), None)
        assert keys_of(queue.take()) == (["/0"], [])

    def test_requests_in_flight_are_bounded(self) -> None:
        queue = WriteQueue(0)
        for _ in range(limits.OXIA_REQUESTS_IN_FLIGHT_MAX + 1):
            queue.add(put("/a"), None)
        while queue.take() is not None:
            pass
        queue.answered(pb.WriteResponse(puts=[pb.PutResponse()]))
        assert queue.take() is not None

    def test_what_was_sent_and_what_was_not(self) -> None:
        queue = WriteQueue(0)
        queue.add(put("/a"), "sent")
        queue.take()
        queue.add(put("/a"), "waits")
        assert queue.owners == ["sent", "waits"]
        assert queue.lost() == ["sent"]
        assert queue.drop() == ["waits"]
        assert queue.owners == []

    def test_answers_that_do_not_fit_are_refused(self) -> None:
        queue = WriteQueue(0)
        with pytest.raises(ProtocolError, match="never sent"):
            queue.answered(pb.WriteResponse())
        queue.add(put("/a"), "owner")
        queue.take()
        with pytest.raises(ProtocolError, match="0 answers to 1"):
            queue.answered(pb.WriteResponse())
        assert queue.lost() == ["owner"]


@pytest.mark.parametrize(
    "kind",
    [
        pb.WriteResponse,
        pb.ReadResponse,
        pb.ListResponse,
        pb.RangeScanResponse,
        pb.NotificationBatch,
    ],
)
@given(data=st.binary(max_size=300))
def test_hostile_bytes_are_understood_or_refused(kind: type, data: bytes) -> None:
    try:
        message = parse(kind, data)
    except ProtocolError:
        return
    if isinstance(message, pb.NotificationBatch):
        events = events_of(0, (0, 0), 1, message)
        assert events is None or all(event.path.startswith("/") for event in events)


def cut(*operations: Operation) -> list[list[int]]:
    return list(groups(operations, range(len(operations))))


class TestGroups:
    def test_strangers_go_together(self) -> None:
        assert cut(Put("/a", b""), Put("/b/c", b""), Delete("/d")) == [[0, 1, 2]]

    @pytest.mark.parametrize(
        "pair",
        [
            (Put("/a", b""), Put("/a", b"")),
            (Put("/a", b""), Delete("/a/b")),
            (Delete("/a/b/c"), Delete("/a")),
            (Put("/f", b""), Put("/x", b"", guard=Guard("/f", Version(0, 0)))),
            (Delete("/x", guard=Guard("/f", Version(0, 0))), Put("/f", b"")),
            (Put("/q/n-", b"", sequential=True), Put("/q/m-", b"", sequential=True)),
            (Put("/q", b"", ephemeral=True), Put("/q/n-", b"", sequential=True)),
            (Put("/", b"", sequential=True), Put("/x", b"", sequential=True)),
        ],
    )
    def test_those_that_matter_to_each_other_wait(self, pair: tuple[Operation, ...]) -> None:
        assert cut(*pair) == [[0], [1]]


def batch(offset: int, *changes: tuple[str, int, int | None]) -> pb.NotificationBatch:
    message = pb.NotificationBatch(shard=0, offset=offset)
    for key, kind, version in changes:
        entry = message.notifications.add(key=key)
        entry.value.type = kind  # type: ignore[assignment]
        if version is not None:
            entry.value.version_id = version
    return message


class TestEvents:
    def test_puts_in_their_order_then_deletes(self) -> None:
        message = batch(
            9,
            ("/a", pb.KEY_DELETED, None),
            ("/b", pb.KEY_MODIFIED, 8),
            ("/c", pb.KEY_CREATED, 7),
            ("hidden", pb.KEY_CREATED, 6),
        )
        assert [entry.path for entry in in_order(message)] == ["/c", "/b", "/a"]
        events = events_of(1, (3, 4), 1, message)
        assert events is not None
        assert [(event.kind, event.path) for event in events] == [
            (EventKind.CREATED, "/c"),
            (EventKind.MODIFIED, "/b"),
            (EventKind.DELETED, "/a"),
        ]
        revisions = [event.revision for event in events]
        assert revisions == sorted(set(revisions))
        within = [revision_of(1, Position((3, 4), 1, seen)) for seen in (1, 2)]
        assert revisions == [*within, revision_of(1, Position((3, 9)))]

    def test_parents_of_a_copy_come_first(self) -> None:
        message = batch(1, ("/a/b", pb.KEY_CREATED, 0), ("/a", pb.KEY_CREATED, 0))
        assert [entry.path for entry in in_order(message)] == ["/a", "/a/b"]

    def test_deleted_range_is_a_gap(self) -> None:
        assert events_of(0, (0,), 0, batch(1, ("/a", pb.KEY_RANGE_DELETED, None))) is None
        assert events_of(0, (0,), 0, batch(1, ("", pb.KEY_RANGE_DELETED, None))) is None, (
            "it begins before the first path"
        )


class TestNodes:
    def test_owner_is_told_by_the_identity(self) -> None:
        version = pb.Version(version_id=4, modifications_count=2)
        assert session_of(version) == 0
        version.session_id, version.client_identity = 7, identity_of(123)
        assert session_of(version) == 123
        found = found_from_version(version)
        stat = stat_from("/a", found, Revision(0, 1), 123)
        assert (stat.version, stat.ephemeral, stat.created_by_self) == (
            Version(0, 2, 4),
            True,
            True,
        )
        assert not stat_from("/a", found, Revision(0, 1), 124).created_by_self
        for foreign in ("a-pulsar-broker", "anabranch-", "anabranch-x", "anabranch-²"):
            version.client_identity = foreign
            assert session_of(version) == 7

    def test_version_is_both_numbers(self) -> None:
        found = found_from_version(pb.Version(version_id=4, modifications_count=2))
        assert mismatch("/a", found, Version(0, 2, 4)) is None
        assert mismatch("/a", found, ANY) is None
        assert mismatch("/a", None, ABSENT) is None
        for wrong in (Version(0, 3, 4), Version(0, 2, 5), Version(1, 2, 4), ABSENT):
            assert mismatch("/a", found, wrong) is not None
        assert mismatch("/a", None, Version(0, 2, 4)) is not None


class TestSharedLease:
    def test_the_slowest_shard_decides(self) -> None:
        lease = SharedLease(12.0)
        assert lease.valid_until_s < 0
        lease.begin(0, 100.0)
        lease.begin(1, 101.0)
        assert (lease.valid_until_s, lease.lost_at_s) == (112.0, 110.0)
        lease.renewed(0, 105.0)
        assert lease.valid_until_s == 113.0
        lease.renewed(9, 500.0)
        lease.renewed(1, 104.0)
        lease.renewed(1, 90.0)
        assert lease.valid_until_s == 116.0
        lease.end()
        assert lease.valid_until_s < 0
