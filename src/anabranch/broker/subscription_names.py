"""Names of subscriptions: which may be used at all, and which belong to the broker."""

from typing import Final

from anabranch.broker.refusals import Refused
from anabranch.errors import InvalidName
from anabranch.ids import check_subscription_name
from anabranch.wire import ServerError

DEDUPLICATION_CURSOR: Final = "pulsar.dedup"


def checked_subscription(name: str) -> str:
    """Return a name that a client gave if it may be used.

    Raises:
        Refused: with the code that Pulsar has for a bad one, which clients do not retry.
    """
    refuse_reserved(name)
    try:
        return check_subscription_name(name)
    except InvalidName as error:
        raise Refused(ServerError.ProducerBusy, str(error)) from error


def refuse_reserved(name: str) -> None:
    """Refuse a name that the broker uses itself.

    Raises:
        Refused: if it is one.
    """
    if name == DEDUPLICATION_CURSOR:
        raise Refused(ServerError.ProducerBusy, f"{name} is a reserved subscription name")
