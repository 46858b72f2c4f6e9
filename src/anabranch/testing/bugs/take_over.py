"""Planted bugs of topics that go from one broker to another."""

import asyncio
from dataclasses import replace

from anabranch.broker.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.errors import Fenced
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.cursors import Cursors
from anabranch.managed_ledger.formats import CursorDocument
from anabranch.managed_ledger.stored_cursor import StoredCursor
from anabranch.metadata.locks import Lock
from anabranch.metadata.store import Node
from anabranch.ownership import BrokerAddress, Bundle
from anabranch.ownership.cluster_ownership import ClusterOwnership
from anabranch.testing.planted import original, planted


@planted(
    "stale_owner_answers_lookups",
    target="anabranch.ownership.cluster_ownership:ClusterOwnership._lost",
)
def stale_owner_answers_lookups(self: ClusterOwnership, bundle: Bundle, lock: Lock) -> None:
    """A broker closes what it has lost, and goes on telling clients to come to it."""
    del lock
    self.on_lost(bundle)


@planted("unload_answers_before_it_is_done", target="anabranch.broker.unloading:unload")
async def unload_answers_before_it_is_done(broker: Broker, bundle: Bundle, to: str = "") -> None:
    """The lock is released and clients are sent on, and a second later the topics are closed."""
    next_owner = await broker.ownership.begin_unload(bundle, to)
    await broker.ownership.finish_unload(bundle)
    for topic in broker.topics.all():
        if bundle.holds(topic.name):
            topic.next_owner = next_owner
            topic.disconnect_clients()

    async def close_later() -> None:
        await asyncio.sleep(1.0)
        await broker.topics.stop(bundle)

    broker.tasks.spawn(f"close {bundle}", close_later())


@planted(
    "gaps_are_forgotten_at_take_over",
    target="anabranch.managed_ledger.formats:restore_acknowledged",
)
def gaps_are_forgotten_at_take_over(document: CursorDocument, chain: Chain) -> Acknowledged:
    """What was acknowledged out of order is sent again by the next owner."""
    document = replace(document, ranges=(), batches=())
    restored: Acknowledged = original("gaps_are_forgotten_at_take_over")(document, chain)
    return restored


@planted(
    "later_owners_cursors_are_adopted",
    target="anabranch.managed_ledger.cursors:Cursors._read_as_owner",
)
async def later_owners_cursors_are_adopted(self: Cursors, path: str) -> Node | None:
    """Who lost a topic writes its cursor back without what lies in ledgers it does not know."""
    return await self._env.metadata.get(path)


@planted(
    "closed_cursors_keep_their_ledger",
    target="anabranch.managed_ledger.stored_cursor:StoredCursor.leave",
)
async def closed_cursors_keep_their_ledger(self: StoredCursor) -> None:
    """The ledger that a cursor was writing stays open until the process ends."""


@planted("handed_over_topics_leave_no_snapshot", target="anabranch.broker.topic:Topic.stop")
async def handed_over_topics_leave_no_snapshot(self: Topic) -> None:
    """What is known of producers is written when clients leave: too late for the next owner."""
    self.closed = True
    await self.ledger.close()


@planted("what_was_lost_ends_at_once", target="anabranch.broker.broker:Broker._lost")
def what_was_lost_ends_at_once(self: Broker, bundle: Bundle) -> None:
    """All topics of a lost bundle end in one go, however many there are."""
    for topic in self.topics.all():
        if bundle.holds(topic.name):
            topic.fail(Fenced(f"{bundle} is not owned by this broker any more"))


@planted("what_is_unloaded_is_told_at_once", target="anabranch.broker.unloading:disconnect_all")
async def what_is_unloaded_is_told_at_once(
    topics: list[Topic], next_owner: BrokerAddress | None
) -> None:
    """The clients of all topics that were handed over are sent on in one go."""
    for topic in topics:
        topic.next_owner = next_owner
        topic.disconnect_clients()
