"""What a bookie says of itself where it is registered: how it is reached. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """A bookie's registration."""

    address: BookieAddress
    properties: Mapping[str, str]


def decode_service_info(bookie_id: str, value: bytes) -> BookieServiceInfo:
    """Read a bookie's registration; an empty one says that its id is its address.

    Raises:
        FormatError: naming the bookie, if it does not say how the bookie is reached.
    """
    if not value:
        return BookieServiceInfo(address_in_id(bookie_id), {})
    message = pb.BookieServiceInfoFormat()
    try:
        message.ParseFromString(value)
        endpoints = [(end.protocol, end.host, end.port) for end in message.endpoints]
        properties = dict(message.properties)
    except (DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"the registration of bookie {bookie_id}: {error}") from None
    for protocol, host, port in endpoints:
        if protocol == PROTOCOL:
            if not host or not 1 <= port <= _PORT_MAX:
                raise FormatError(f"bookie {bookie_id} is registered at {host!r}, port {port}")
            return BookieServiceInfo(BookieAddress(host, port), properties)
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
