"""The subscription types that are served, by their numbers on the wire."""

from collections.abc import Callable
from typing import Final

from anabranch.broker.consumer import Consumer, KeySharing
from anabranch.broker.dispatch import (
    EXCLUSIVE,
    SHARED,
    Dispatcher,
    ExclusiveDispatcher,
    SharedDispatcher,
)
from anabranch.broker.failover import FAILOVER, FailoverDispatcher
from anabranch.broker.key_shared import KEY_SHARED, KeySharedDispatcher

TYPE_NAMES: Final = {
    EXCLUSIVE: "Exclusive",
    SHARED: "Shared",
    FAILOVER: "Failover",
    KEY_SHARED: "Key_Shared",
}
IN_ORDER: Final = frozenset({EXCLUSIVE, FAILOVER})
"""One consumer at a time gets everything, so that "up to here" means something."""

_MADE: Final[dict[int, Callable[[str, Consumer], Dispatcher]]] = {
    EXCLUSIVE: lambda _, __: ExclusiveDispatcher(),
    SHARED: lambda _, __: SharedDispatcher(),
    FAILOVER: lambda topic, _: FailoverDispatcher(topic),
    KEY_SHARED: lambda _, first: KeySharedDispatcher(first.sharing or KeySharing()),
}


def new_dispatcher(type_number: int, topic: str, first: Consumer) -> Dispatcher:
    """Return the rules of a type for a subscription that gets its first consumer."""
    return _MADE[type_number](topic, first)
