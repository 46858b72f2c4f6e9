"""The metadata of all ledgers of a cluster of bookies, in whatever store the cluster uses.

Where they are and what they say is BookKeeper's, so that bookies, BookKeeper's tools and Pulsar
share them. A lost answer is asked after: a ledger that was made is known again by its token, a
change by what it wrote. Only if nobody can be asked does the outcome stay unknown.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    decode_metadata,
    encode_metadata,
)
from anabranch.ledgers.bookkeeper.ledger_paths import ROOT, Layout, LedgerPaths, decode_layout
from anabranch.metadata.paths import join
from anabranch.metadata.store import ABSENT, ANY, Expected, MetadataStore, Version
from anabranch.runtime import Runtime

T = TypeVar("T")


class Found(NamedTuple):
    """A ledger's metadata, and the version that a change of them must name."""

    metadata: LedgerMetadata
    version: Version


class LedgerRegistry:
    """Reads and changes the metadata of ledgers."""

    def __init__(self, store: MetadataStore, runtime: Runtime, paths: LedgerPaths) -> None:
        self.paths = paths
        self._store = store
        self._runtime = runtime

    @classmethod
    async def open(
        cls, store: MetadataStore, runtime: Runtime, root: str = ROOT
    ) -> "LedgerRegistry":
        """Find out how a cluster lays its ledgers out; one that does not say does it as Pulsar.

        Raises:
            FormatError: if it does so in a way that is not known here.
        """
        paths = LedgerPaths(root)
        node = await store.get(paths.layout_document)
        layout = Layout.HIERARCHICAL
        if node is not None:
            layout = decode_layout(paths.layout_document, node.value)
        return cls(store, runtime, replace(paths, layout=layout))

    def new_token(self) -> int:
        """A token for a ledger about to be made, by which its maker knows it again."""
        return self._runtime.entropy.below(2**63)

    async def create(self, metadata: LedgerMetadata) -> Found:
        """Make a ledger known; the metadata have a token.

        Raises:
            ConflictError: if there is a ledger of that id.
            InputError: if the metadata contradict themselves.
            OutcomeUnknown: if nobody could be asked whether it was made.
        """
        assert metadata.ctoken is not None, "a ledger is known again by its token"
        value = encode_metadata(metadata)
        path = self.paths.ledger(metadata.ledger_id)
        asking = _Asking(f"whether ledger {metadata.ledger_id} was made", self._runtime)
        try:
            stat = await asking.write(lambda: self._store.put(path, value, ABSENT))
        except BadVersion:
            found = await asking.answer(lambda: self._look(metadata.ledger_id))
            if found and asking.in_doubt and found.metadata.ctoken == metadata.ctoken:
                return found
            raise ConflictError(
                f"ledger {metadata.ledger_id} exists already: its id cannot be used again"
            ) from None
        return Found(metadata, stat.version)

    async def read(self, ledger_id: int) -> Found:
        """What is known of a ledger.

        Raises:
            NotFound: if there is no such ledger.
            FormatError: if its metadata are damaged.
        """
        found = await self._look(ledger_id)
        if found is None:
            raise NotFound(f"there is no ledger {ledger_id}")
        return found

    async def replace(self, metadata: LedgerMetadata, version: Version) -> Found:
        """Change a ledger's metadata, if they are still those of that version.

        Raises:
            BadVersion: if they are not: read again and decide anew.
            NotFound: if the ledger was deleted.
            InputError: if the metadata contradict themselves.
            OutcomeUnknown: if nobody could be asked whether they were changed.
        """
        value = encode_metadata(metadata)
        path = self.paths.ledger(metadata.ledger_id)
        asking = _Asking(f"whether ledger {metadata.ledger_id} was changed", self._runtime)
        try:
            stat = await asking.write(lambda: self._store.put(path, value, version))
        except BadVersion:
            found = await asking.answer(lambda: self._look(metadata.ledger_id))
            if found is None:
                raise NotFound(f"ledger {metadata.ledger_id} was deleted") from None
            # Who else wrote the very same wanted the same: it makes no difference who did.
            if asking.in_doubt and found.metadata == metadata:
                return found
            raise
        return Found(metadata, stat.version)

    async def delete(self, ledger_id: int, expected: Version | None = None) -> None:
        """Forget a ledger, whatever its state; bookies drop its entries some time later.

        Raises:
            NotFound: if there is no such ledger.
            BadVersion: if its metadata are not of that version any more.
            OutcomeUnknown: if nobody could be asked whether it was deleted.
        """
        path = self.paths.ledger(ledger_id)
        wanted: Expected = ANY if expected is None else expected
        asking = _Asking(f"whether ledger {ledger_id} was deleted", self._runtime)
        try:
            await asking.write(lambda: self._store.delete(path, wanted))
        except NotFound:
            if not asking.in_doubt:
                raise NotFound(f"there is no ledger {ledger_id}") from None

    async def list(self) -> AsyncIterator[int]:
        """Ids of all ledgers, ascending. One that comes or goes meanwhile may be among them."""
        for way in self.paths.levels():
            async for ledger_id in self._below(self.paths.root, way):
                yield ledger_id

    async def watch(self, ledger_id: int) -> AsyncIterator[Found | None]:
        """What is known of a ledger now, and again after each change; None, and no more, if gone.

        States that were overtaken by others may be left out.

        Raises:
            FormatError: if its metadata are damaged.
        """
        changes = self._store.watch(self.paths.ledger(ledger_id))
        found = await self._look(ledger_id)
        yield found
        if found is None:
            return
        async for _ in changes:
            shown, found = found, await self._look(ledger_id)
            if found != shown:
                yield found
            if found is None:
                return

    async def _look(self, ledger_id: int) -> Found | None:
        node = await self._store.get(self.paths.ledger(ledger_id))
        if node is None:
            return None
        return Found(decode_metadata(ledger_id, node.value), node.stat.version)

    async def _below(self, path: str, way: tuple[re.Pattern[str], ...]) -> AsyncIterator[int]:
        # A name is at most ten thousand siblings wide: one answer holds them all.
        for name in await self._store.children(path):
            if not way[0].fullmatch(name):
                continue
            below = join(path, name)
            if len(way) > 1:
                async for ledger_id in self._below(below, way[1:]):
                    yield ledger_id
            elif (found := self.paths.ledger_id(below)) is not None:
                yield found


class _Asking:
    """The attempts to learn what became of a write whose answer was lost."""

    def __init__(self, question: str, runtime: Runtime) -> None:
        self._question = question
        self._runtime = runtime
        self._gives_up_s = 0.0
        self._next_s = limits.UPDATE_BACKOFF_S_MIN
        self.in_doubt = False
        """Whether an earlier attempt may have taken effect, or may still."""

    async def write(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat a conditional write until the store has answered it.

        Raises:
            OutcomeUnknown: if there was no answer in time.
            Unreachable: if the first attempt was not even sent.
        """
        while True:
            try:
                return await attempt()
            except OutcomeUnknown as lost:
                await self._doubt(lost)
            except Unreachable as unsent:
                if not self.in_doubt:
                    raise
                await self._doubt(unsent)

    async def _doubt(self, lost: AnabranchError) -> None:
        """Wait before the next attempt.

        Raises:
            OutcomeUnknown: if there is no time for another one.
        """
        now_s = self._runtime.clock.monotonic_s()
        if not self.in_doubt:
            self.in_doubt = True
            self._gives_up_s = now_s + limits.BOOKKEEPER_UNKNOWN_OUTCOME_S_MAX
        if now_s + self._next_s > self._gives_up_s:
            raise OutcomeUnknown(f"it is not known {self._question}: {lost}") from lost
        await asyncio.sleep(self._runtime.entropy.uniform(self._next_s / 2, self._next_s))
        self._next_s = min(self._next_s * 2, limits.UPDATE_BACKOFF_S_MAX)

    async def answer(self, look: Callable[[], Awaitable[Found | None]]) -> Found | None:
        """What is there now; asked again and again if something depends on it.

        Raises:
            OutcomeUnknown: if nobody answers and an earlier attempt may have taken effect.
        """
        while True:
            try:
                return await look()
            except (Unreachable, OutcomeUnknown) as failure:
                if not self.in_doubt:
                    raise
                await self._doubt(failure)
