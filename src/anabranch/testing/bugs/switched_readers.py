"""Planted bugs of reading, watching and holding through a replacement of the metadata store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from anabranch.metadata.store import Expected, MetadataStore, Record, Version
from anabranch.metadata.switchable.gate import Gate
from anabranch.metadata.switchable.route import Route
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.metadata.switchable.tokens import generation_of, own_version
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.resting import Rests
from anabranch.migrations.freeze_copy.converging import Converging
from anabranch.migrations.freeze_copy.tail import End, Tail
from anabranch.testing.planted import original, planted


@planted(
    "reads_end_with_their_store", target="anabranch.metadata.switchable.store:SwitchableStore._read"
)
async def reads_end_with_their_store(
    self: SwitchableStore, read: Callable[[MetadataStore], Any]
) -> tuple[Route, Any]:
    """A read that is under way when its store is left fails."""
    route = self.route
    return route, await read(route.store)


@planted(
    "watches_stay_with_the_source",
    target="anabranch.metadata.switchable.store:SwitchableStore.turn_to",
)
def watches_stay_with_the_source(
    self: SwitchableStore, route: Route, *, loses_session: bool
) -> None:
    """Whoever waits for changes hears of the store that was left."""
    watches, self._watches = self._watches, {}
    plain: Any = original("watches_stay_with_the_source")
    plain(self, route, loses_session=loses_session)
    self._watches = watches


@planted(
    "what_was_not_heard_is_forgotten",
    target="anabranch.metadata.switchable.carried:Carried.move",
)
def what_was_not_heard_is_forgotten(
    self: Any, store: MetadataStore, first: Iterable[object]
) -> None:
    """A reader is not told that it may have missed something."""
    del first
    self._news, self._first = self._begin(store), []


@planted(
    "a_switch_ends_the_session",
    target="anabranch.metadata.switchable.store:SwitchableStore.turn_to",
)
def a_switch_ends_the_session(self: SwitchableStore, route: Route, *, loses_session: bool) -> None:
    """Everybody is told that its session was lost, and lets go of all it has."""
    del loses_session
    plain: Any = original("a_switch_ends_the_session")
    plain(self, route, loses_session=True)


@planted("sync_is_forgotten", target="anabranch.metadata.switchable.store:SwitchableStore.sync")
async def sync_is_forgotten(self: SwitchableStore) -> None:
    """A barrier for reads is none, as in Pulsar."""
    await asyncio.sleep(0)


@planted(
    "stale_tokens_are_believed", target="anabranch.metadata.switchable.route:Route.own_expected"
)
async def stale_tokens_are_believed(self: Route, path: str, version: Version) -> Expected:
    """Any version from before the switch is taken for the one that was copied."""
    if generation_of(version) in self.generations:
        return own_version(version)
    node = await self.store.get(path)
    assert node is not None
    return node.stat.version


@planted(
    "another_life_counts_as_the_same",
    target="anabranch.metadata.switchable.route:Route.own_expected",
)
async def another_life_counts_as_the_same(self: Route, path: str, version: Version) -> Expected:
    """A node that was deleted and made anew counts as the one before, if it has its number."""
    old = None if self.left is None else await self.left.store.get(path)
    if old is not None and old.stat.version.native == version.native:
        version = old.stat.version
    plain: Any = original("another_life_counts_as_the_same")
    found: Expected = await plain(self, path, version)
    return found


@planted(
    "versions_come_back_changed",
    target="anabranch.migrations.freeze_copy.converging:Converging._lost_version",
)
async def versions_come_back_changed(self: Converging, record: Record, there: Record) -> bool:
    """On the way back every version becomes what the store in use could keep of it."""
    del self, record, there
    return False


@planted("the_source_is_not_fenced", target="anabranch.migrations.freeze_copy.steps:raise_fence")
async def the_source_is_not_fenced(store: MetadataStore, attempt: str) -> None:
    """A process that was left behind writes on to the store that was left."""


@planted("copy_knows_no_pace", target="anabranch.migrations.freeze_copy.tail:Pace.take")
def copy_knows_no_pace(self: Pace, now_s: float, size_bytes: int) -> float:
    """A copy goes as fast as it can."""
    del self, now_s, size_bytes
    return 0.0


@planted(
    "changes_follow_one_by_one",
    target="anabranch.migrations.freeze_copy.converging:_side_by_side",
)
async def changes_follow_one_by_one(
    do: Callable[[Any], Awaitable[None]], work: Sequence[Any]
) -> None:
    """Every write waits for the one before it."""
    for each in work:
        await do(each)


@planted("copy_gives_no_way", target="anabranch.migrations.freeze_copy.tail:Rests.take")
def copy_gives_no_way(self: Rests, now_s: float) -> float:
    """A copy without a rate takes all the time there is."""
    del self, now_s
    return 0.0


@planted("comparison_knows_no_pace", target="anabranch.migrations.freeze_copy.tail:Tail._slowed")
async def comparison_knows_no_pace(
    self: Tail, records: AsyncIterator[Record], pace: Pace
) -> AsyncIterator[Record]:
    """The store in use is copied as slowly as was asked for, and compared as fast as can be."""
    del self, pace
    async for record in records:
        yield record


async def _changed(
    name: str, self: Tail, end: End, change: Callable[[Record], Record | None]
) -> AsyncIterator[Record]:
    plain: Any = original(name)
    async for record in plain(self, end, None):
        if (seen := change(record)) is not None:
            yield seen


@planted("empty_nodes_are_left_out", target="anabranch.migrations.freeze_copy.tail:Tail._lasting")
def empty_nodes_are_left_out(self: Tail, end: End, rests: Rests | None) -> AsyncIterator[Record]:
    """A node without a value counts as none, in the copy and in the comparison."""
    return _changed(
        "empty_nodes_are_left_out", self, end, lambda record: record if record.value else None
    )


@planted("indexes_are_left_out", target="anabranch.migrations.freeze_copy.tail:Tail._lasting")
def indexes_are_left_out(self: Tail, end: End, rests: Rests | None) -> AsyncIterator[Record]:
    """Nodes are found by their paths alone afterwards."""
    return _changed("indexes_are_left_out", self, end, lambda record: record._replace(indexes=()))


@planted("times_are_left_out", target="anabranch.migrations.freeze_copy.tail:Tail._lasting")
def times_are_left_out(self: Tail, end: End, rests: Rests | None) -> AsyncIterator[Record]:
    """All nodes are said to be of the same moment."""
    return _changed(
        "times_are_left_out",
        self,
        end,
        lambda record: record._replace(created_ms=1, modified_ms=1),
    )


@planted("held_writes_wait_for_ever", target="anabranch.metadata.switchable.gate:Gate.pass_in")
async def held_writes_wait_for_ever(self: Gate) -> None:
    """Nobody is told that the store cannot be written for now."""
    while not self.enter():
        assert self._opened is not None
        await asyncio.shield(self._opened)


@planted(
    "chroots_are_not_told_apart",
    target="anabranch.migrations.freeze_copy.planning:is_within",
)
def chroots_are_not_told_apart(*_: object) -> bool:
    """Two places of one ensemble count as one store."""
    return True
