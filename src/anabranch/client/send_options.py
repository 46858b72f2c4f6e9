"""What can be said of a message when it is sent, and the message made of it."""

from collections.abc import Mapping
from typing import TypedDict

from anabranch.client.packing import Outgoing, check_outgoing
from anabranch.errors import InputError
from anabranch.runtime import Clock


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `Producer.send_soon`."""

    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int | None
    sequence_id: int | None
    deliver_at_ms: int | None
    deliver_after_s: float | None


def outgoing(value: bytes | None, about: SendOptions, clock: Clock) -> Outgoing:
    """Make the message; its sequence id is a guess if none was given.

    Raises:
        InputError: naming what is wrong with it.
    """
    deliver_at_ms, after_s = about.get("deliver_at_ms"), about.get("deliver_after_s")
    if after_s is not None:
        if deliver_at_ms is not None:
            raise InputError("deliver_at_ms and deliver_after_s exclude each other")
        deliver_at_ms = clock.wall_ms() + round(after_s * 1000)
    message = Outgoing(
        value,
        about.get("key"),
        about.get("ordering_key"),
        about.get("properties"),
        about.get("event_time_ms"),
        about.get("sequence_id") or 0,
        deliver_at_ms,
    )
    check_outgoing(message)
    return message
