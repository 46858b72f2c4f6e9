"""What a bookie says of itself where it is registered: how it is reached. Pure."""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from anabranch.errors import FormatError
from anabranch.generated import bookkeeper_formats_pb2 as pb

PROTOCOL: Final = "bookie-rpc"
_PORT_MAX: Final = 65_535


class BookieAddress(NamedTuple):
    """Where a bookie listens."""

    host: str
    port: int


def registered_address(bookie_id: str, value: bytes) -> BookieAddress:
    """Where a bookie's registration says it is; an empty one says that its id is its address.

    Raises:
        FormatError: naming the bookie, if it does not say how the bookie is reached.
    """
    if not value:
        return address_in_id(bookie_id)
    message = pb.BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise FormatError(f"the registration of bookie {bookie_id}: {error}") from None
    for endpoint in message.endpoints:
        if endpoint.protocol == PROTOCOL:
            host, port = endpoint.host, endpoint.port
            # Protobuf gives the bytes of a text that is none.
            if not (isinstance(host, str) and host and 1 <= port <= _PORT_MAX):
                raise FormatError(f"bookie {bookie_id} is registered at {host!r}, port {port}")
            return BookieAddress(host, port)
    raise FormatError(f"the registration of bookie {bookie_id} has no endpoint for {PROTOCOL}")


def address_in_id(bookie_id: str) -> BookieAddress:
    """The address that an id of the form `host:port` is.

    Raises:
        FormatError: if it is not of that form.
    """
    host, _, digits = bookie_id.rpartition(":")
    if host and digits.isascii() and digits.isdigit() and 1 <= int(digits) <= _PORT_MAX:
        return BookieAddress(host, int(digits))
    raise FormatError(f"bookie {bookie_id!r} does not say its address: an id is no host:port")
