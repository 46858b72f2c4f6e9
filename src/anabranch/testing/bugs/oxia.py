"""Planted bugs of the client for Oxia, `anabranch.metadata.oxia`."""

from typing import Any

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.requests import WriteQueue
from anabranch.metadata.oxia.sessions import SessionKeeper
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.oxia.writing import Writer
from anabranch.runtime.channels import Channel
from anabranch.testing.planted import original, planted


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


@planted("oxia_next_session_vouches", target="anabranch.metadata.oxia.writing:Writer._check_lease")
def oxia_next_session_vouches(self: Writer, path: str, _session: int) -> None:
    """A write that began in one session counts by the lease of the next."""
    original("oxia_next_session_vouches")(self, path, self._sessions.number)


@planted("oxia_creates_over_others", target="anabranch.metadata.oxia.shard:ShardLink.write")
def oxia_creates_over_others(self: ShardLink, operation: Any, on_answer: Any = None) -> Any:
    """A node that must not be there is written over if it is."""
    if isinstance(operation, pb.PutRequest) and operation.expected_version_id == -1:
        operation.ClearField("expected_version_id")
    return original("oxia_creates_over_others")(self, operation, on_answer)
