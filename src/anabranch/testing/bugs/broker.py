"""Planted bugs of `anabranch.broker`."""

from collections.abc import Callable

from anabranch.broker.consumer import Consumer
from anabranch.broker.dispatch import SharedDispatcher
from anabranch.broker.subscription import Subscription
from anabranch.ids import Position
from anabranch.managed_ledger import Cursor
from anabranch.testing.planted import original, planted


@planted("read_outlives_rewind", target="anabranch.broker.subscription:Subscription._read")
async def read_outlives_rewind(
    self: Subscription, start: Position, count: int, replays: list[Position], generation: int
) -> None:
    """A storage read that was begun before a rewind is delivered after it."""
    del generation
    await original("read_outlives_rewind")(self, start, count, replays, self._generation)


@planted(
    "leaver_takes_its_messages_along",
    target="anabranch.broker.dispatch:SharedDispatcher.remove",
)
def leaver_takes_its_messages_along(self: SharedDispatcher, consumer: Consumer) -> bool:
    """What a consumer held when it went away is not given to the others."""
    if consumer in self.consumers:
        self.consumers.remove(consumer)
    return False


@planted("ack_answered_before_durable", target="anabranch.managed_ledger.cursor:Cursor.flush")
def ack_answered_before_durable(self: Cursor, done: Callable[[Exception | None], None]) -> None:
    """An acknowledgement is answered while it is only in memory."""
    done(None)
