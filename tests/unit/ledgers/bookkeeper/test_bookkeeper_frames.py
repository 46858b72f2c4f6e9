"""The bytes that go to bookies and come from them."""

import pytest

from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Request, Status

KEY = bytes(range(20))


def sent(request: Request, number: int) -> pb.Request:
    data = frames.frame_start(request, frames.varint(number)) + bytes(request.body)
    assert frames.frame_end(data, 0, 1 << 20) == len(data)
    return frames.parse_request(data[frames.LENGTH_BYTES :])


def test_requests_of_changing_lengths_are_each_what_they_should_be() -> None:
    numbers = [2, 4, 126, 128, 130, 2**14, 2**21]
    requests = frames.AddRequests(7, KEY, iter(numbers))
    for number, entry_id, size in zip(
        numbers, (0, 1, 127, 128, 129, 2**14, 5), (0, 1, 1, 100, 127, 300, 100), strict=True
    ):
        found = sent(requests.add(entry_id, b"header", bytes(size)), number)
        assert (found.header.txn_id, found.add.entry_id) == (number, entry_id)
        assert found.add.body == b"header" + bytes(size)


@pytest.mark.parametrize("number", [1, 127, 128, 2**21, 2**63 - 1])
@pytest.mark.parametrize("times", [30, 600], ids=["short", "not copied"])
@pytest.mark.parametrize("recovery", [False, True])
def test_an_add_by_hand_is_what_protobuf_would_write(
    number: int, recovery: bool, times: int
) -> None:
    payload = memoryview(b"..payload.." * times)[2:-2]
    requests = frames.AddRequests(number, KEY, iter([number]), recovery=recovery)
    request = requests.add(number - 1, b"header+digest", payload)
    assert request.digits == frames.varint(number)
    expected = pb.Request(
        header=pb.PacketHeader(version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txn_id=number),
        add=pb.AddRequest(
            ledger_id=number,
            entry_id=number - 1,
            master_key=KEY,
            body=b"header+digest" + bytes(payload),
        ),
    )
    if recovery:
        expected.header.priority = 100
        expected.add.flag = pb.AddRequest.RECOVERY_ADD
    assert sent(request, number) == expected
    assert frames.frame_start(request, request.digits) == request.start
    expected.header.txn_id = 99
    assert sent(request, 99) == expected, "the same with another number"
    whole = frames.frame_start(request, frames.varint(number)) + bytes(request.body)
    overhead = len(whole) - len(b"header+digest") - len(payload)
    assert overhead + 32 + 20 <= frames.ADD_OVERHEAD_BYTES_MAX


def test_reads_fence_only_with_a_key() -> None:
    plain = sent(frames.read(7, -1), 300)
    assert (plain.read.ledger_id, plain.read.entry_id, plain.header.txn_id) == (7, -1, 300)
    assert not plain.read.HasField("flag")
    assert not plain.read.HasField("master_key")
    fencing = sent(frames.read(7, 3, fence_key=KEY), 1)
    assert fencing.read.flag == pb.ReadRequest.FENCE_LEDGER
    assert (fencing.read.master_key, fencing.header.priority) == (KEY, 100)


def test_the_other_requests() -> None:
    told = sent(frames.write_lac(7, 5, KEY, b"packet"), 1)
    assert told.header.operation == pb.WRITE_LAC
    assert told.write_lac == pb.WriteLacRequest(ledger_id=7, lac=5, master_key=KEY, body=b"packet")
    assert sent(frames.read_lac(7), 1).read_lac.ledger_id == 7
    shown = sent(frames.authenticate("plugin", b"token"), 1)
    assert (shown.auth.plugin_name, shown.auth.payload) == ("plugin", b"token")
    assert sent(frames.start_tls(), 1).HasField("start_tls")


def test_frames_end_where_they_say() -> None:
    answer = pb.Response(
        header=pb.PacketHeader(version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txn_id=9),
        status=pb.EOK,
    )
    data = frames.frame(answer)
    assert frames.frame_end(b"behind" + data, 6, 100) == 6 + len(data)
    for cut in range(len(data)):
        assert frames.frame_end(data[:cut], 0, 100) == (4 if cut < 4 else len(data)), "at least"
    assert frames.parse_response(data[frames.LENGTH_BYTES :]) == answer


def test_hostile_frames_are_refused() -> None:
    with pytest.raises(FrameTooLarge, match="4294967295"):
        frames.frame_end(b"\xff" * 8, 0, 1 << 20)
    with pytest.raises(ProtocolError):
        frames.parse_response(b"\xff\xff")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0a\x06\x08\x03\x10\x02\x18\x01",
        b"\x0a\x06\x08\x03\x10\x02\x18\x01\x10\xe7\x07",
        b"\x0a\x06\x08\x03\x10\x02\x18\x01\x10\x00",
        b"\x0a\x06\x08\x03\x10\x02\x18\x01\x10\x00\xaa\x06\x03\x08\xe7\x07",
    ],
    ids=["nothing", "no status", "unknown status", "no add", "add of unknown status"],
)
def test_an_answer_without_a_known_status_is_a_failure(content: bytes) -> None:
    assert frames.status_of(frames.parse_response(content)) is Status.IO_ERROR


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (pb.EOK, pb.EOK, Status.OK),
        (pb.EOK, pb.EFENCED, Status.FENCED),
        (pb.EUA, None, Status.UNAUTHORIZED),
        (pb.EBADREQ, None, Status.BAD_REQUEST),
    ],
)
def test_the_status_is_that_of_the_operation_if_the_whole_went_well(
    outer: pb.StatusCode, inner: pb.StatusCode | None, expected: Status
) -> None:
    response = pb.Response(
        header=pb.PacketHeader(version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txn_id=1),
        status=outer,
    )
    if inner is not None:
        response.add.CopyFrom(pb.AddResponse(status=inner, ledger_id=1, entry_id=1))
    assert frames.status_of(response) is expected


def test_only_what_a_bookie_vouches_for_says_that_an_entry_is_absent() -> None:
    absent = [status for status in Status if status.says_absent]
    assert absent == [Status.NO_LEDGER, Status.NO_ENTRY]
