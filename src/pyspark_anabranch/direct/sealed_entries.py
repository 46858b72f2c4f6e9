"""Entries of a range out of sealed ledgers: as they are stored, in order, none missing."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack

from anabranch.errors import Corruption, EntryLost, NotFound
from anabranch.ids import TopicName
from anabranch.ledgers.store import Entry, LedgerState
from anabranch.managed_ledger.inspection import LedgerView
from anabranch.managed_ledger.references import MANAGED_LEDGER_KEY
from pyspark_anabranch.direct.stored_ledgers import StoredLedgers
from pyspark_anabranch.entry_rows import DamagedEntry, MissingEntry, StoredEntry
from pyspark_anabranch.places import Span


class SealedEntries:
    """See `EntrySource`."""

    def __init__(
        self,
        stored: StoredLedgers,
        topic: TopicName,
        spans: Sequence[Span],
        sealed: Mapping[int, int],
    ) -> None:
        """`sealed` says how many entries each of the ledgers has in all, as the broker knows."""
        self._stored = stored
        self._topic = topic
        self._spans = spans
        self._sealed = sealed
        self._held = AsyncExitStack()
        self._coming: AsyncGenerator[StoredEntry, None] | None = None

    async def open(self) -> None:
        """See `EntrySource.open`."""
        wanted = {span.ledger_id for span in self._spans}
        view = await self._held.enter_async_context(self._stored.opened(wanted))
        self._coming = self._all(view)

    async def entries(self, bytes_max: int) -> list[StoredEntry]:
        """See `EntrySource.entries`."""
        assert self._coming is not None, "open first"
        found: list[StoredEntry] = []
        size = 0
        async for entry in self._coming:
            found.append(entry)
            size += len(entry.content)
            if size >= bytes_max:
                break
        return found

    async def close(self) -> None:
        """See `EntrySource.close`."""
        if self._coming is not None:
            await self._coming.aclose()
        await self._held.aclose()

    async def _all(self, view: LedgerView) -> AsyncGenerator[StoredEntry, None]:
        for span in self._spans:
            await self._check(view, span)
            due = span.first
            try:
                async for entry in view.read(span.ledger_id, span.first, span.until - 1):
                    self._expect(entry, span.ledger_id, due)
                    due += 1
                    yield StoredEntry(*entry)
            except Corruption as error:
                raise DamagedEntry(
                    f"{self._topic}: entry {span.ledger_id}:{due} cannot be read: {error}"
                ) from error
            except (EntryLost, NotFound) as error:
                raise self._missing(span._replace(first=due), str(error)) from error
            self._check_end(span, due)

    async def _check(self, view: LedgerView, span: Span) -> None:
        """Make sure that it is the ledger which the broker listed."""
        try:
            known = await view.describe(span.ledger_id)
        except NotFound as error:
            raise self._missing(span, str(error)) from error
        except Corruption as error:
            raise DamagedEntry(
                f"{self._topic}: entries {span.ledger_id}:{span.first} to "
                f"{span.ledger_id}:{span.until - 1} cannot be read: {error}"
            ) from error
        made_for = known.custom_metadata.get(MANAGED_LEDGER_KEY, b"").decode(
            errors="backslashreplace"
        )
        if made_for != self._topic.managed_ledger_name:
            raise self._missing(span, f"the ledger there was made for {made_for or 'nobody'}")
        if known.state is not LedgerState.CLOSED:
            raise self._missing(span, "the ledger there is not closed")
        count = self._sealed[span.ledger_id]
        if known.last_entry_id + 1 != count:
            there = known.last_entry_id + 1
            raise self._missing(span, f"the ledger there has {there} entries, not {count}")

    def _expect(self, entry: Entry, ledger_id: int, due: int) -> None:
        if (entry.ledger_id, entry.entry_id) != (ledger_id, due):
            raise MissingEntry(
                f"{self._topic}: entry {ledger_id}:{due} has to come next, and the store gave "
                f"{entry.ledger_id}:{entry.entry_id}"
            )

    def _check_end(self, span: Span, due: int) -> None:
        if due != span.until:
            raise self._missing(span._replace(first=due), "the ledger there ends before")

    def _missing(self, span: Span, why: str) -> MissingEntry:
        return MissingEntry(
            f"{self._topic}: entries {span.ledger_id}:{span.first} to "
            f"{span.ledger_id}:{span.until - 1} are not at {self._stored.url}: {why}"
        )
