"""Writing exported nodes as they were.

The count of a node's changes is kept exactly, and Oxia's own number is set to the same, which is
what Pulsar takes for the version. A shard's own counter knows nothing of such numbers: before they
are set it is pushed above the largest of them, so that no number is ever given twice, even if the
copy ends right there. Times cannot be set: they are those of the copy.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import ConflictError, InputError, OutcomeUnknown
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.operation_checks import check_record
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.encoding import Puts
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.keys import children_range
from anabranch.metadata.oxia.nodes import found_from
from anabranch.metadata.oxia.requests import ABSENT_VERSION
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.oxia.writing import index_messages
from anabranch.metadata.paths import ROOT, ancestors_of
from anabranch.metadata.store import Record
from anabranch.runtime.channels import CallFailed

_FILLERS_PER_REQUEST = 10_000
_KNOWN_PARENTS_MAX = 65_536
_CHUNKS_UNDER_WAY_MAX = 4


class _Chunk(NamedTuple):
    records: int
    counts: list[pb.WriteRequest]
    requests: list[Puts]
    answers: list[asyncio.Future[pb.WriteResponse]]
    """Of `counts`, and then of `requests`."""


class Restorer:
    """One run of `restore`."""

    def __init__(self, client: OxiaClient, feed: Feed, *, alone: bool = False) -> None:
        self._client = client
        self._alone = alone
        """Whether nothing was there when the caller began, and nobody else writes."""
        self._feed = feed
        self._there: dict[str, None] = {ROOT: None}
        self._largest: dict[int, int] = {}
        self._pushed: dict[int, int] = {}
        """For each shard, a number that it has given out."""
        self._untouched = False
        """Whether no count of something deleted is expected; one that is there is seen to."""
        self._under_way: deque[_Chunk] = deque()
        self.count = 0

    def _shard_of(self, key: str) -> int:
        assert self._client.shard_map is not None
        return self._client.shard_map.shard_of(key)

    async def run(self, records: AsyncIterator[Record]) -> int:
        """Write all; see `MetadataStore.restore`."""
        chunk: list[Record] = []
        chunk_bytes = 0
        # In an empty store nothing is in the way, and nobody needs to look for it.
        empty = self._alone or not await self._client.keys_in(children_range(ROOT))
        self._untouched = self._alone
        if empty and not self._alone:
            kept = await asyncio.gather(*(link.any_in(("", "")) for link in self._client.links))
            self._untouched = not any(kept)
        self._feed.bulk_writers += 1
        try:
            async for record in records:
                check_record(record)
                if record.session is not None:
                    continue
                chunk.append(record)
                chunk_bytes += len(record.value) + len(record.path)
                if (
                    len(chunk) >= limits.OXIA_REQUEST_OPERATIONS_MAX
                    or chunk_bytes >= limits.OXIA_REQUEST_BYTES_MAX
                ):
                    await self._write_chunk(chunk, look=not empty)
                    chunk, chunk_bytes = [], 0
            await self._write_chunk(chunk, look=not empty)
            await self._wait_for(0)
        finally:
            left = [answer for chunk in self._under_way for answer in chunk.answers]
            await asyncio.gather(*left, return_exceptions=True)
            try:
                await self._feed.catch_up_all()
            finally:
                self._feed.bulk_writers -= 1
        return self.count

    async def _wait_for(self, under_way_max: int) -> None:
        while len(self._under_way) > under_way_max:
            await self._settle(self._under_way.popleft())

    async def _write_chunk(self, chunk: list[Record], *, look: bool) -> None:
        conflict: ConflictError | None = None
        if look:
            chunk, conflict = await self._without_conflicts(chunk)
        await self._make_parents(chunk)
        requests = self._puts_of(chunk)
        counts: dict[int, pb.WriteRequest] = {}
        for record in chunk:
            if record.next_sequence:
                count = pb.PutRequest(
                    key=keys.sequence_key(record.path),
                    expected_version_id=ABSENT_VERSION if self._untouched else None,
                    override_modifications_count=record.next_sequence - 1,
                )
                self._add(counts, count)
        if not self._untouched:
            await asyncio.gather(*map(self._keep_higher_counts, counts.values()))
        await self._push_all()
        links = self._client.links_by_number
        raised = [request for request in counts.values() if request.puts]
        answers = [links[request.shard].write(request) for request in raised]
        answers += [links[shard].write(request) for shard, request in requests.items()]
        self._under_way.append(_Chunk(len(chunk), raised, list(requests.values()), answers))
        await self._wait_for(0 if conflict is not None else _CHUNKS_UNDER_WAY_MAX)
        if conflict is not None:
            raise conflict

    def _add(self, requests: dict[int, pb.WriteRequest], put: pb.PutRequest) -> None:
        shard = self._shard_of(put.key)
        if shard not in requests:
            requests[shard] = pb.WriteRequest(shard=shard)
        requests[shard].puts.append(put)

    async def _settle(self, chunk: _Chunk) -> None:
        found = await asyncio.gather(*chunk.answers)
        counted, answers = found[: len(chunk.counts)], found[len(chunk.counts) :]
        for counts, answer in zip(chunk.counts, counted, strict=True):
            await self._raise_again(counts, answer)
        for request, answer in zip(chunk.requests, answers, strict=True):
            for place, outcome in enumerate(answer.puts):
                if outcome.status != pb.OK:
                    key = request.keys[place]
                    raise ConflictError(f"{key} exists already: restore into an empty place")
        self.count += chunk.records

    async def _without_conflicts(
        self, chunk: list[Record]
    ) -> tuple[list[Record], ConflictError | None]:
        answers = await asyncio.gather(
            *(self._client.get(record.path, value=False) for record in chunk)
        )
        for place, (record, answer) in enumerate(zip(chunk, answers, strict=True)):
            if answer.status == pb.OK:
                return chunk[:place], ConflictError(
                    f"{record.path} exists already: restore into an empty place"
                )
        return chunk, None

    def _puts_of(self, chunk: list[Record]) -> dict[int, Puts]:
        """The writes of records, by shard. Whole trees go through here."""
        assert self._client.shard_map is not None
        shard_of, there = self._client.shard_map.shard_of, self._there
        requests: dict[int, Puts] = {}
        for record in chunk:
            path, value, changes = record[:3]
            if not value:
                # Pulsar takes the next number of such a parent from its changes.
                changes = max(changes, record.next_sequence - 1)
            shard = shard_of(path)
            request = requests.get(shard)
            if request is None:
                request = requests[shard] = Puts(shard)
            indexes = index_messages(record.indexes) if record.indexes else ()
            request.add(path, value, self._number(shard, changes), changes, indexes)
            there[path] = None
        self._forget_oldest()
        return requests

    def _number(self, shard: int, number: int) -> int | None:
        """Oxia's own number for a node that was changed so often; None if it is to find one."""
        if number > limits.OXIA_PRESERVED_VERSION_MAX:
            return None
        if number > self._largest.get(shard, -1):
            self._largest[shard] = number
        return number

    def _forget_oldest(self) -> None:
        for path in list(islice(self._there, max(0, len(self._there) - _KNOWN_PARENTS_MAX))):
            del self._there[path]

    async def _make_parents(self, chunk: list[Record]) -> None:
        wanted: dict[str, str] = {}
        own = {record.path for record in chunk}
        last = ""
        for record in chunk:
            path = record.path
            parent = path[: path.rindex("/")]
            if parent == last:
                continue  # all that is above was looked at for the one before
            last = parent
            for ancestor in ancestors_of(path):
                if ancestor not in self._there and ancestor not in own:
                    wanted[ancestor] = path
        answers = await asyncio.gather(*(self._client.get(path, value=False) for path in wanted))
        missing: list[str] = []
        for (path, child), answer in zip(wanted.items(), answers, strict=True):
            found = found_from(path, answer)
            if found is None:
                missing.append(path)
            elif found.session != NOBODY:
                raise InputError(f"{child}: {path} is ephemeral and can have no children")
            self._there[path] = None
        writes = []
        for path in missing:
            number = self._number(self._shard_of(path), 0)
            writes.append(
                pb.PutRequest(
                    key=path, expected_version_id=ABSENT_VERSION, override_version_id=number
                )
            )
        await self._push_all()
        await asyncio.gather(*map(self._client.write, writes))

    async def _keep_higher_counts(self, counts: pb.WriteRequest) -> None:
        """Leave out what would lower a count, such as that of a parent deleted long ago."""
        link = self._client.links_by_number[counts.shard]
        wanted = list(counts.puts)
        found = await asyncio.gather(*(link.get(pb.GetRequest(key=put.key)) for put in wanted))
        del counts.puts[:]
        for put, there in zip(wanted, found, strict=True):
            is_there = there.status == pb.OK
            count = there.version.modifications_count if is_there else -1
            if count < put.override_modifications_count:
                put.expected_version_id = there.version.version_id if is_there else ABSENT_VERSION
                counts.puts.append(put)

    async def _raise_again(self, counts: pb.WriteRequest, answer: pb.WriteResponse) -> None:
        """See to the counts that somebody drew numbers from since they were read."""
        link = self._client.links_by_number[counts.shard]
        while True:
            refused = [
                put
                for put, outcome in zip(counts.puts, answer.puts, strict=True)
                if outcome.status != pb.OK
            ]
            counts = pb.WriteRequest(shard=link.number, puts=refused)
            await self._keep_higher_counts(counts)
            if not counts.puts:
                return
            answer = await link.write(counts)

    async def _push_all(self) -> None:
        await asyncio.gather(*map(self._push, self._client.links))

    async def _push(self, link: ShardLink) -> None:
        """Raise the shard's counter above every number that is to be set on it."""
        largest = self._largest.get(link.number)
        if largest is None or largest < self._pushed.get(link.number, -1):
            return
        answer = await link.get(pb.GetRequest(key=keys.LAST_VERSION, include_value=True))
        last = int(answer.value) if answer.status == pb.OK and answer.value.isdigit() else -1
        self._pushed[link.number] = last
        if last > largest:
            return
        while last <= largest:
            count = min(largest + 1 - last, _FILLERS_PER_REQUEST)
            filler = pb.PutRequest(key=keys.FILLER)
            request = pb.WriteRequest(shard=link.number, puts=[filler] * count)
            try:
                written = await link.ask("Write", request, pb.WriteResponse)
            except CallFailed as error:
                raise OutcomeUnknown(
                    f"shard {link.number} was not pushed above version {largest}: {error}"
                ) from None
            last = max(put.version.version_id for put in written.puts)
        self._pushed[link.number] = last
        await link.write(pb.DeleteRequest(key=keys.FILLER))
