"""The bytes between a client and a bookie, for tests that play the bookie by hand."""

from typing import Final

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames

_REQUEST_BYTES_MAX: Final = 1 << 24


def requests_in(data: bytes) -> list[pb.Request]:
    """What a client has sent, all of it whole requests."""
    found: list[pb.Request] = []
    at = 0
    while at < len(data):
        end = frames.frame_end(data, at, _REQUEST_BYTES_MAX)
        found.append(frames.parse_request(data[at + frames.LENGTH_BYTES : end]))
        at = end
    return found


def answer_to_add(
    number: int, status: pb.StatusCode = pb.EOK, *, ledger_id: int = 5
) -> pb.Response:
    """What a bookie says to the add with a number; the number stands for the entry's too."""
    return pb.Response(
        header=pb.PacketHeader(version=pb.VERSION_THREE, operation=pb.ADD_ENTRY, txn_id=number),
        status=pb.EOK,
        add=pb.AddResponse(status=status, ledger_id=ledger_id, entry_id=number),
    )


def stored(request: pb.Request) -> bytes:
    """The frame that says that an entry is stored."""
    return frames.frame(answer_to_add(request.header.txn_id, ledger_id=request.add.ledger_id))
