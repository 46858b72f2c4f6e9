"""Planted bugs of the client for Oxia, `anabranch.metadata.oxia`."""

from typing import Any

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.nodes import Found
from anabranch.metadata.oxia.requests import WriteQueue
from anabranch.metadata.oxia.sessions import SessionKeeper, SharedLease
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.oxia.writing import Writer
from anabranch.metadata.store import Put
from anabranch.runtime.channels import Channel
from anabranch.testing.planted import original, planted


@planted(
    "oxia_one_shard_speaks_for_all", target="anabranch.metadata.oxia.sessions:SharedLease.renewed"
)
def oxia_one_shard_speaks_for_all(self: SharedLease, _shard: int, sent_s: float) -> None:
    """An answer of one shard counts for all of them."""
    for lease in self._leases.values():
        lease.renewed(sent_s)


@planted(
    "oxia_forgotten_session_is_kept",
    target="anabranch.metadata.oxia.sessions:SessionKeeper._renew",
)
async def oxia_forgotten_session_is_kept(self: SessionKeeper, link: ShardLink) -> bool:
    """A shard that does not know the session any more counts as one that renewed it."""
    sent_s = self._runtime.clock.monotonic_s()
    if not await original("oxia_forgotten_session_is_kept")(self, link):
        self.lease.renewed(link.number, sent_s)
    return True


@planted("oxia_any_server_renews", target="anabranch.metadata.oxia.sessions:SessionKeeper._pulse")
async def oxia_any_server_renews(
    self: SessionKeeper, shard: int, session_id: int, channel: Channel, timeout_s: float
) -> bool:
    """An answer of a server counts at once, although others may have replaced it."""
    del self, shard, session_id, channel, timeout_s
    return True


@planted("oxia_lost_writes_are_repeated", target="anabranch.metadata.oxia.requests:WriteQueue.lost")
def oxia_lost_writes_are_repeated(self: WriteQueue) -> list[Any]:
    """A write whose answer was lost is sent again, as if it had not been carried out."""
    for taken in reversed(self._in_flight):
        self._waiting.extendleft(reversed(taken))
    self._in_flight.clear()
    return []


@planted("oxia_feed_goes_on_from_now", target="anabranch.metadata.oxia.feed:Feed._check_gap")
async def oxia_feed_goes_on_from_now(self: Feed, place: int) -> None:
    """After a break nobody is told of what happened meanwhile, nor that something did."""
    self._offsets[place] = None


@planted("oxia_owner_is_not_kept", target="anabranch.metadata.oxia.writing:Writer._try_put")
async def oxia_owner_is_not_kept(self: Writer, put: Put, path: str, found: Found | None) -> Any:
    """An ephemeral node that is written again outlives its session."""
    if found is not None:
        found = found._replace(session_id=None)
    return await original("oxia_owner_is_not_kept")(self, put, path, found)


@planted("oxia_next_session_vouches", target="anabranch.metadata.oxia.writing:Writer._check_lease")
def oxia_next_session_vouches(self: Writer, path: str, _session: int) -> None:
    """A write that began in one session counts by the lease of the next."""
    original("oxia_next_session_vouches")(self, path, self._sessions.number)


@planted("oxia_creates_over_others", target="anabranch.metadata.oxia.shard:ShardLink.write")
def oxia_creates_over_others(self: ShardLink, operation: Any) -> Any:
    """A node that must not be there is written over if it is."""
    if isinstance(operation, pb.PutRequest) and operation.expected_version_id == -1:
        operation.ClearField("expected_version_id")
    return original("oxia_creates_over_others")(self, operation)
