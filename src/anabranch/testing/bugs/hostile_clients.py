"""Planted bugs of how `anabranch.broker` stands what clients send."""

from anabranch.broker.access import Access
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.session import Session
from anabranch.ids import TopicName
from anabranch.testing.planted import planted
from anabranch.wire import Command


@planted("bugs_leave_connections_waiting", target="anabranch.broker.mishaps:Mishaps.met_by")
def bugs_leave_connections_waiting(
    self: Mishaps, session: Session, command: Command, error: Exception
) -> None:
    """Whoever meets a bug waits for an answer for ever."""
    self.report(f"{type(command).__name__} of {session.peer}", error)


@planted(
    "initial_subscriptions_are_not_asked_for",
    target="anabranch.broker.access:Access.check_consumer",
)
async def initial_subscriptions_are_not_asked_for(
    self: Access, topic: TopicName, subscription: str
) -> None:
    """Who may publish may create a subscription with it."""
    del self, topic, subscription


@planted("claimed_batches_are_believed", target="anabranch.broker.topic:believable_messages")
def claimed_batches_are_believed(claimed: int) -> int:
    """A batch holds as many messages as its producer says, be it fewer than none."""
    return claimed
