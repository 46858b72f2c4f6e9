"""Planted bugs of the metadata store on Oxia."""

import asyncio

from anabranch.errors import StoreFailed
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.nodes import Found
from anabranch.metadata.oxia.restoring import Restorer
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.oxia.writing import Writer
from anabranch.metadata.store import Revision
from anabranch.runtime.channels import Channel
from anabranch.testing.planted import planted

_LINK = "anabranch.metadata.oxia.shard:ShardLink"


@planted("oxia_waits_for_ever", target=f"{_LINK}._patience")
def oxia_waits_for_ever(self: ShardLink) -> asyncio.Timeout:
    """A write that is never answered has no outcome at all."""
    del self
    return asyncio.timeout_at(None)


@planted("moved_shard_is_asked_for_at_its_old_place", target=f"{_LINK}.moved")
def moved_shard_is_asked_for_at_its_old_place(self: ShardLink, channel: Channel) -> None:
    """Nobody cares that another server leads a shard now."""
    del self, channel


@planted("split_shard_goes_unnoticed", target="anabranch.metadata.oxia.client:OxiaClient._fail")
def split_shard_goes_unnoticed(self: OxiaClient, error: StoreFailed) -> None:
    """Keys are looked for on shards that are gone."""
    del self, error


@planted(
    "restore_lowers_counts",
    target="anabranch.metadata.oxia.restoring:Restorer._keep_higher_counts",
)
async def restore_lowers_counts(self: Restorer, counts: pb.WriteRequest) -> None:
    """A parent that was deleted and is restored gives out old numbers again."""
    del self, counts


@planted("restore_pushes_nothing", target="anabranch.metadata.oxia.restoring:Restorer._push_all")
async def restore_pushes_nothing(self: Restorer) -> None:
    """A shard gives out numbers again that were set on it."""
    del self


@planted("written_is_written_again", target="anabranch.metadata.oxia.writing:Writer._place")
async def written_is_written_again(self: Writer, path: str, written: Found) -> Revision:
    """A write whose notification is lost counts as not sent."""
    return await self._feed.written(path, written.version.life)
