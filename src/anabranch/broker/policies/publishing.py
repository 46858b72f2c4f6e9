"""Which single messages a topic does not take, because of the policies it lives by."""

from typing import TYPE_CHECKING

from anabranch.broker.transactions import NOT_BUFFERED
from anabranch.errors import ProtocolError
from anabranch.policies.effective import EffectivePolicies
from anabranch.wire import Send, ServerError, read_metadata

if TYPE_CHECKING:
    from anabranch.broker.topic import Topic

Refusal = tuple[ServerError, str]


def judges_messages(policies: EffectivePolicies) -> bool:
    """Whether messages have to be looked into before they are taken."""
    return policies.encryption_required or policies.delayed_delivery.delay_ms_max > 0


def why_refused(topic: "Topic", send: Send, entry_bytes_max: int) -> Refusal | None:
    """The code and words with which a message is refused; None if it is taken."""
    size = len(send.entry)
    if send.txn is not None:
        return ServerError.NotAllowedError, NOT_BUFFERED
    if size > entry_bytes_max or size > topic.entry_bytes_max:
        return ServerError.NotAllowedError, "message is too large"
    return _judged(topic, send) if topic.judges_messages else None


def _judged(topic: "Topic", send: Send) -> Refusal | None:
    try:
        metadata = read_metadata(send.entry)
    except ProtocolError as error:
        return ServerError.MetadataError, f"the message cannot be judged: {error}"
    policies = topic.policies
    if policies.encryption_required and not metadata.encrypted:
        return ServerError.MetadataError, "Messages must be encrypted"
    delay_ms_max = policies.delayed_delivery.delay_ms_max
    delay_ms = (metadata.deliver_at_time or 0) - topic.rules.now_ms()
    if 0 < delay_ms_max < delay_ms:
        words = f"Exceeds max allowed delivery delay of {delay_ms_max} milliseconds"
        return ServerError.NotAllowedError, words
    return None
