"""Answers that are known by their form say what parsing them would say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.stored_answers import stored_run
from anabranch.testing.bookies.conversation import answer_to_add

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
CODES = st.sampled_from([pb.EOK, pb.EOK, pb.EOK, pb.EFENCED, pb.EIO, pb.EUA])
BYTES_MAX = 1 << 16


@st.composite
def answers(draw: st.DrawFn) -> pb.Response:
    """Mostly those to adds of few ledgers that went well."""
    response = pb.Response(
        header=pb.PacketHeader(
            version=pb.VERSION_THREE,
            operation=draw(st.sampled_from([pb.ADD_ENTRY] * 6 + [pb.READ_ENTRY, pb.WRITE_LAC])),
            txn_id=draw(NUMBERS),
        ),
        status=draw(CODES),
    )
    if draw(st.integers(0, 9)) == 0:
        response.header.priority = 100
    ledger_id = draw(st.sampled_from([1, 2, 200]))
    if response.header.operation == pb.ADD_ENTRY:
        entry_id = draw(NUMBERS)
        response.add.CopyFrom(
            pb.AddResponse(status=draw(CODES), ledger_id=ledger_id, entry_id=entry_id)
        )
    elif response.header.operation == pb.READ_ENTRY:
        body = draw(st.binary(max_size=40))
        response.read.CopyFrom(
            pb.ReadResponse(status=draw(CODES), ledger_id=ledger_id, entry_id=0, body=body)
        )
    return response


def told(data: bytes) -> list[tuple[bytes, Status | None]]:
    """The number of each frame and how it went, as a connection takes them."""
    found: list[tuple[bytes, Status | None]] = []
    at = 0
    while True:
        numbers, behind = stored_run(data, at)
        if numbers:
            size = (behind - at) // len(numbers)
            assert behind == at + size * len(numbers)
            for place, digits in enumerate(numbers):
                message = data[at + place * size + frames.LENGTH_BYTES : at + (place + 1) * size]
                found.append((digits, Status.OK) if is_number(digits) else as_parsed(message))
        else:
            try:
                behind = frames.frame_end(data, at, BYTES_MAX)
            except FrameTooLarge:
                return found
            if behind > len(data):
                return found
            found.append(as_parsed(data[at + frames.LENGTH_BYTES : behind]))
        at = behind


def is_number(digits: bytes) -> bool:
    """Whether a request can have such a number; if not, none is found by it."""
    value = sum((digit & 0x7F) << 7 * place for place, digit in enumerate(digits))
    return value < 1 << 64 and frames.varint(value) == digits


def as_parsed(message: bytes) -> tuple[bytes, Status | None]:
    try:
        response = frames.parse_response(message)
    except ProtocolError:
        return b"", None
    return frames.varint(response.header.txn_id), frames.status_of(response)


def cut(data: bytes) -> list[bytes]:
    """The messages of the whole frames."""
    found, at = [], 0
    while True:
        try:
            end = frames.frame_end(data, at, BYTES_MAX)
        except FrameTooLarge:
            return found
        if end > len(data):
            return found
        found.append(data[at + frames.LENGTH_BYTES : end])
        at = end


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(answers(), st.integers(1, 4)), max_size=12), st.integers(0, 20))
def test_runs_of_answers_say_what_parsing_each_would(
    drawn: list[tuple[pb.Response, int]], missing: int
) -> None:
    data = b"".join(frames.frame(response) * times for response, times in drawn)
    data = data[: max(0, len(data) - missing)]
    assert told(data) == [as_parsed(message) for message in cut(data)]


@settings(max_examples=400, deadline=None)
@given(NUMBERS, st.integers(1, 5), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255))))
def test_spoilt_answers_are_never_said_to_be_stored_if_they_say_otherwise(
    number: int, times: int, spoilt: list[tuple[int, int]]
) -> None:
    ids = b"\x10\x05\x18\x07"  # not looked at, so not spoilt
    usual = answer_to_add(number, ledger_id=5)
    usual.add.entry_id = 7
    frame = frames.frame(usual)
    assert frame.endswith(ids)
    data = bytearray(frame * times)
    for place, value in spoilt:
        which, where = place % times, place // times % (len(frame) - len(ids))
        data[which * len(frame) + where] = value
    stream = bytes(data)
    assert told(stream) == [as_parsed(message) for message in cut(stream)]
