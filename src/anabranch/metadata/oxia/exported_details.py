"""What an export knows of a node besides its record, in bounded memory.

The entries of indexes are in the order of indexes and keys, not of nodes. So all of them are
passed, and those are kept whose nodes come first; when the export is beyond these, all are passed
again for the next ones. The counts of sequential children come before the nodes of their level:
as many are held as there is room for, and the others are looked up.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from itertools import groupby

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.limits import EXPORTED_COUNTS_MAX, EXPORTED_INDEX_KEYS_MAX
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.store import IndexKey

Place = tuple[int, bytes]
"""Of a key, as the server sorts them."""


class FirstEntries:
    """Of all index entries that pass by, those whose nodes come first after a place. Pure."""

    def __init__(self, after: Place | None, entries_max: int) -> None:
        self._after = after
        self._entries_max = entries_max
        self.entries: list[tuple[Place, str, str, str]] = []
        """Place and path of a node, and between them an index and its key."""
        self.until: Place | None = None
        """Up to this place nothing was left out; None if nothing was anywhere."""

    def add(self, path: str, key: IndexKey) -> None:
        """One more passes by."""
        place = keys.server_order(path)
        if self._after is not None and place <= self._after:
            return
        if self.until is not None and place > self.until:
            return
        self.entries.append((place, key.index, key.key, path))
        if len(self.entries) >= 2 * self._entries_max:
            self.cut()

    def cut(self) -> None:
        """Leave out what is too much; a node has all of its keys, or none."""
        self.entries.sort()
        end = self._entries_max
        if len(self.entries) <= end:
            return
        self.until = self.entries[end - 1][0]
        while end < len(self.entries) and self.entries[end][0] == self.until:
            end += 1
        del self.entries[end:]


class ExportedIndexes:
    """The index keys of nodes that come in the order of the server."""

    def __init__(self, client: OxiaClient) -> None:
        self._client = client
        self._entries_max = max(1, EXPORTED_INDEX_KEYS_MAX // max(1, len(client.links)))
        self._known: dict[str, tuple[IndexKey, ...]] = {}
        self._until: Place | None = None

    async def begin(self) -> None:
        """List those of the first nodes; of all, if there is room for them."""
        await self._list(None)

    async def reach(self, path: str) -> None:
        """Call it before `take` while not `all_known`."""
        if self._until is not None and keys.server_order(path) > self._until:
            await self._list(self._until)

    @property
    def all_known(self) -> bool:
        """Whether no node that comes has keys that are not listed yet."""
        return self._until is None

    def take(self, path: str) -> tuple[IndexKey, ...]:
        """The keys of a node, once."""
        return self._known.pop(path, ())

    async def _list(self, after: Place | None) -> None:
        found = await asyncio.gather(
            *(
                link.again("listing", partial(self._first_of, link, after))
                for link in self._client.links
            )
        )
        cuts = [part.until for part in found if part.until is not None]
        self._until = min(cuts, default=None)
        entries = sorted(
            entry
            for part in found
            for entry in part.entries
            if self._until is None or entry[0] <= self._until
        )
        self._known = {
            path: tuple(IndexKey(index, key) for _, index, key, _ in group)
            for path, group in groupby(entries, key=lambda entry: entry[3])
        }

    async def _first_of(self, link: ShardLink, after: Place | None) -> FirstEntries:
        first = FirstEntries(after, self._entries_max)
        stream = link.key_stream(keys.INDEX_ENTRIES, internal=True)
        async with aclosing(stream) as listed:  # type: ignore[type-var]
            async for key in listed:
                if (entry := keys.index_entry(key)) is not None:
                    first.add(*entry)
        first.cut()
        return first


class ExportedCounts:
    """The next numbers of sequential children, by parent."""

    def __init__(self, client: OxiaClient) -> None:
        self._client = client
        self._known: dict[str, int] = {}
        self._level_cut: int | None = None
        """Not all counts of this level are known. Those of the levels above were of use before."""

    def add(self, parent: str, changes: int) -> None:
        """A count was met, before the nodes of its level."""
        if len(self._known) < EXPORTED_COUNTS_MAX:
            self._known[parent] = changes + 1
        else:
            self._level_cut = parent.count("/")

    def knows(self, path: str) -> bool:
        """Whether the count of a node need not be looked up."""
        return self._level_cut is None or path.count("/") != self._level_cut

    def take(self, path: str) -> int:
        """The next number of a node, once; 0 if it has none."""
        return self._known.pop(path, 0)

    async def look_up(self, paths: Sequence[str]) -> list[int]:
        """The next numbers of nodes of which some may not be known."""
        unknown = [path for path in paths if path not in self._known]
        answers = await asyncio.gather(
            *(self._client.get(keys.sequence_key(path), value=False) for path in unknown)
        )
        for path, answer in zip(unknown, answers, strict=True):
            if answer.status == pb.OK:
                self._known[path] = answer.version.modifications_count + 1
        return [self.take(path) for path in paths]
