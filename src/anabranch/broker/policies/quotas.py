"""What follows when too much is not acknowledged. Pure; the answers are Pulsar's."""

from typing import Final, NamedTuple

from anabranch.broker.refusals import Refused
from anabranch.wire import ServerError

HOLD: Final = "producer_request_hold"
EVICT: Final = "consumer_backlog_eviction"
_KEPT_SHARE: Final = 0.9
"""An eviction leaves this much of a quota, so that it is not due again at once."""


class Exceeded(NamedTuple):
    """A quota that a topic is over."""

    action: str
    text: str


def kept_bytes(limit: int) -> int:
    """How many bytes an eviction leaves."""
    return int(limit * _KEPT_SHARE)


def refusal(topic: str, exceeded: Exceeded) -> Refused:
    """What a producer is told: to wait, or that its messages fail."""
    if exceeded.action == HOLD:
        code = ServerError.ProducerBlockedQuotaExceededError
    else:
        code = ServerError.ProducerBlockedQuotaExceededException
    return Refused(code, f"Cannot create producer on topic with backlog quota exceeded: {topic}")
