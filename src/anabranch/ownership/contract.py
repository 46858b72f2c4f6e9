"""What a broker asks of whoever knows the owners, and the answer of one that has everything."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from anabranch.ids import TopicName
from anabranch.ownership.addresses import BrokerAddress
from anabranch.ownership.bundles import Bundle


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The answer to a lookup."""

    broker: BrokerAddress
    is_owner: bool = True
    """If not, the broker is to be asked again, and takes the topic if it is told to."""
    authoritative: bool = True
    """With a broker to be asked: whether it is told to take the topic."""


class Ownership(Protocol):
    """Who serves which topics."""

    on_lost: Callable[[Bundle], None]
    """Called when this broker is not the owner of a bundle any more, and not by its own wish."""

    async def start(self) -> None:
        """Let others know of this broker."""
        ...

    async def locate(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """Say where a topic is served; `authoritative`: take it if nobody has it.

        Raises:
            AnabranchError: if that cannot be said now; to be tried again.
        """
        ...

    async def require(self, topic: TopicName) -> None:
        """Make sure that this broker owns a topic, taking it if nobody has it.

        Raises:
            Fenced: if another one does, or it cannot be said now: the client is to look it up.
        """
        ...

    def owns(self, topic: TopicName) -> bool:
        """Whether this broker may act as the owner of a topic now."""
        ...

    def owned(self) -> list[Bundle]:
        """Every bundle that this broker owns."""
        ...

    async def owner_of(self, bundle: Bundle) -> BrokerAddress | None:
        """Who has a bundle; None if nobody does.

        Raises:
            ConflictError: if it is just being given up.
        """
        ...

    async def leader(self) -> BrokerAddress | None:
        """The broker that leads, as last heard of; None while there is none."""
        ...

    async def leave(self) -> None:
        """Take no more bundles, and let others know that this broker is not to be sent any."""
        ...

    async def begin_unload(self, bundle: Bundle, to: str = "") -> BrokerAddress | None:
        """Open no more topics of a bundle, and say who is to have it, None if anybody may.

        Raises:
            NotFound: if this broker does not own it, or there is no broker `to`.
        """
        ...

    async def finish_unload(self, bundle: Bundle) -> None:
        """Give a bundle up, after all its topics were closed."""
        ...

    async def close(self) -> None:
        """Give up everything that is left."""
        ...


class SoleOwner:
    """The only broker there is owns everything."""

    def __init__(self, me: BrokerAddress) -> None:
        self._here = Whereabouts(me)
        self.on_lost: Callable[[Bundle], None] = lambda bundle: None

    async def start(self) -> None:
        """See `Ownership.start`."""

    async def locate(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """See `Ownership.locate`."""
        del topic, authoritative
        return self._here

    async def require(self, topic: TopicName) -> None:
        """See `Ownership.require`."""

    def owns(self, topic: TopicName) -> bool:
        """See `Ownership.owns`."""
        del topic
        return True

    def owned(self) -> list[Bundle]:
        """See `Ownership.owned`: it has no need to know how they are cut."""
        return []

    async def owner_of(self, bundle: Bundle) -> BrokerAddress | None:
        """See `Ownership.owner_of`."""
        del bundle
        return self._here.broker

    async def leader(self) -> BrokerAddress | None:
        """See `Ownership.leader`."""
        return self._here.broker

    async def leave(self) -> None:
        """See `Ownership.leave`."""

    async def begin_unload(self, bundle: Bundle, to: str = "") -> BrokerAddress | None:
        """See `Ownership.begin_unload`: clients come back here."""
        del bundle, to
        return None

    async def finish_unload(self, bundle: Bundle) -> None:
        """See `Ownership.finish_unload`."""

    async def close(self) -> None:
        """See `Ownership.close`."""
