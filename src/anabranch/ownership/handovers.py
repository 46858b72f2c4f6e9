"""To whom this broker gave bundles that nobody has taken yet.

Its clients are sent there. Once anybody was seen to have such a bundle it is an old story: whoever
had it may have given it on, perhaps back to this broker.
"""

from typing import NamedTuple

from anabranch.metadata.store import Event, EventKind, MetadataStore
from anabranch.ownership.addresses import BrokerAddress
from anabranch.ownership.bundles import BUNDLES, Bundle
from anabranch.ownership.limits import GIVEN_AWAY_S
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks


class _Given(NamedTuple):
    to: BrokerAddress
    until_s: float


class Handovers:
    """Bundles under way to another broker, by the path of their node."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._given: dict[str, _Given] = {}

    def start(self, tasks: Tasks) -> None:
        """Begin to listen to the store; before anything is given away."""
        changes = self._store.watch(BUNDLES)

        async def hear_changes() -> None:
            async for event in changes:
                self._changed(event)

        tasks.spawn("bundles taken", hear_changes())

    def give(self, bundle: Bundle, to: BrokerAddress) -> None:
        """Send clients there, for as long as it may take to take it."""
        self._given[bundle.path] = _Given(to, self._clock.monotonic_s() + GIVEN_AWAY_S)

    def to(self, bundle: Bundle) -> BrokerAddress | None:
        """Who is to have a bundle, if it was given away from here and not yet taken."""
        given = self._given.get(bundle.path)
        if given is not None and given.until_s <= self._clock.monotonic_s():
            del self._given[bundle.path]
            given = None
        return None if given is None else given.to

    def taken(self, bundle: Bundle) -> None:
        """Somebody has it."""
        self._given.pop(bundle.path, None)

    def _changed(self, event: Event) -> None:
        if event.kind is EventKind.GAP:
            self._given.clear()  # nobody knows who had what meanwhile
        elif event.kind is EventKind.CREATED:
            self._given.pop(event.path, None)
