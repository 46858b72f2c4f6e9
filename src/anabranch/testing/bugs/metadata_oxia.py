"""Planted bugs of the metadata store on Oxia."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from anabranch.errors import StoreFailed
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.exported_details import ExportedCounts, ExportedIndexes
from anabranch.metadata.oxia.placing import Places, Write
from anabranch.metadata.oxia.restoring import Restorer
from anabranch.metadata.oxia.sessions import SessionKeeper
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.runtime.channels import Channel, Exchange
from anabranch.testing.planted import planted

T = TypeVar("T")
_LINK = "anabranch.metadata.oxia.shard:ShardLink"


@planted("oxia_waits_for_ever", target=f"{_LINK}._patience")
def oxia_waits_for_ever(self: ShardLink) -> asyncio.Timeout:
    """A write that is never answered has no outcome at all."""
    del self
    return asyncio.timeout_at(None)


@planted(
    "oxia_sessions_do_not_wait_for_a_connection",
    target="anabranch.metadata.oxia.sessions:SessionKeeper._connect",
)
async def oxia_sessions_do_not_wait_for_a_connection(self: SessionKeeper, channel: Channel) -> None:
    """A connection that is there for moments only is missed again and again."""
    del self, channel


@planted("oxia_broken_streams_are_listened_to", target=f"{_LINK}._let_go")
async def oxia_broken_streams_are_listened_to(
    self: ShardLink, exchange: Exchange, reader: asyncio.Task[Any]
) -> None:
    """The end of a stream is heard when the next one has writes under way, and counts for those."""
    del reader
    exchange.cancel()
    self._lost("the stream of writes broke")


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


@planted("written_is_written_again", target="anabranch.metadata.oxia.placing:Places._give_up")
def written_is_written_again(self: Places, write: Write) -> None:
    """A write whose notification is lost counts as not sent."""
    for waiting in self._wanted.pop(write):
        if not waiting.future.done():
            waiting.future.set_exception(StoreFailed("other shards"))


@planted(
    "export_lists_index_keys_once",
    target="anabranch.metadata.oxia.exported_details:ExportedIndexes.reach",
)
async def export_lists_index_keys_once(self: ExportedIndexes, path: str) -> None:
    """Index keys that there was no room for at first are never listed."""
    del self, path


@planted(
    "export_forgets_counts",
    target="anabranch.metadata.oxia.exported_details:ExportedCounts.look_up",
)
async def export_forgets_counts(self: ExportedCounts, paths: Sequence[str]) -> list[int]:
    """Counts that there was no room for are left out."""
    return [self.take(path) for path in paths]


@planted(
    "oxia_first_failure_leaves_the_rest",
    target="anabranch.metadata.oxia.scanning:_heads",
)
async def oxia_first_failure_leaves_the_rest(streams: Sequence[AsyncIterator[T]]) -> list[T | None]:
    """When a shard fails, nobody waits for the others, and they cannot be ended."""
    return list(await asyncio.gather(*(anext(stream, None) for stream in streams)))
