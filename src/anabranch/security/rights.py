"""The rights there are, and the things they are rights to.

Every command of the wire and every page of the web names exactly one `Right`; what has none is
refused.
"""

from dataclasses import dataclass
from enum import Enum

from anabranch.ids import TopicName


class Right(Enum):
    """What a caller must be allowed to do, from the least to the most."""

    ANYBODY = "anybody"
    """No credentials needed: whether the server is alive."""
    KNOWN = "known"
    """Whoever has shown credentials, or is let in as anonymous."""
    LOOK_UP = "look up"
    """Whoever may produce to or consume from a topic may ask where it is and how it fares."""
    PRODUCE = "produce"
    CONSUME = "consume"
    """With a subscription: from that one."""
    LIST = "list"
    """Whoever may produce or consume anywhere in a namespace may ask what is in it."""
    DRAIN = "drain"
    """Whoever may consume anywhere in a namespace may clear what waits in it."""
    ADMINISTER = "administer"
    """The tenant's administrators."""
    SUPERUSER = "superuser"


@dataclass(frozen=True, slots=True)
class Resource:
    """What a right is asked for."""

    tenant: str = ""
    namespace: str = ""
    """`tenant/namespace`."""
    topic: TopicName | None = None
    subscription: str = ""

    @classmethod
    def of_topic(cls, topic: TopicName, subscription: str = "") -> "Resource":
        """A topic, or one of its subscriptions."""
        return cls(topic.tenant, topic.namespace_name, topic, subscription)

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.namespace:
            return f"namespace {self.namespace}"
        return f"tenant {self.tenant}" if self.tenant else "the cluster"
