"""The chain of ledgers together with its node: publish first, then change memory.

Every method is one step that either is durable when it returns or has changed nothing here.
Only one may run at a time; `ledger.py` sees to that.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace

from anabranch import limits
from anabranch.errors import AnabranchError, CatalogChanged, ConflictError, Fenced, StorageError
from anabranch.ids import Position
from anabranch.ledgers.clusters import CreatedLedger
from anabranch.ledgers.stamps import LedgerPlace
from anabranch.ledgers.store import LedgerQuorums, LedgerWriter
from anabranch.managed_ledger.appender import Appender
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.environment import Environment
from anabranch.managed_ledger.formats import ChainDocument, encode_chain
from anabranch.managed_ledger.opening import (
    OpenedChain,
    create_ledger,
    discard_ledger,
    new_span,
    open_ledger,
    start_over,
)
from anabranch.managed_ledger.owned_node import OwnedNode
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")


class PublishedChain:
    """A chain, the writer of its open ledger, and the document that others see."""

    __slots__ = (
        "_env",
        "_fenced_s",
        "_name",
        "appender",
        "chain",
        "document",
        "node",
        "quorums",
        "writer",
    )

    def __init__(self, opened: OpenedChain, env: Environment) -> None:
        self._name = opened.name
        self._env = env
        self.node: OwnedNode = opened.node
        self.document: ChainDocument = opened.document
        self.chain: Chain = opened.chain
        self.writer: LedgerWriter | None = opened.writer
        self.quorums: LedgerQuorums | None = None
        """Of ledgers that are begun from now on; None for the store's own."""
        self.appender: Appender | None = None
        """Who uses the writer: it has to be told what a ledger has that was taken away."""
        self._fenced_s = -math.inf
        """When a ledger was last found to be taken."""

    def use_quorums(self, quorums: LedgerQuorums | None) -> None:
        """Begin ledgers by these quorums from now on; None for the store's own."""
        self.quorums = quorums

    async def roll(self) -> LedgerWriter:
        """Close the open ledger and go on with a new one."""
        closed_ms = await self.close_writer()
        created = await self._publish_next(closed_ms)
        self.chain.roll(closed_ms, created.place.ledger_id, created.stamp)
        self.writer = created.writer
        return created.writer

    async def _publish_next(self, closed_ms: int) -> CreatedLedger:
        """Begin a ledger and publish the chain with it, in the cluster that is active just then."""
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            created = await create_ledger(
                self._name, self._env, above=self.chain.highest_id, quorums=self.quorums
            )
            closing = self.chain.closing_span(closed_ms)
            spans = (*self.chain.closed, closing, new_span(created))
            document = replace(self.document, spans=spans)
            try:
                await self.node.write(encode_chain(document), created.guard)
            except CatalogChanged:
                await start_over(self._env.ledgers, created)
                continue
            except Fenced:
                # Only here is it certain that no chain names it; an unknown outcome must leave
                # it alone.
                await discard_ledger(self._env.ledgers, created.place)
                raise
            self.document = document
            return created
        raise ConflictError(
            f"the catalog of storage clusters changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times "
            f"while managed ledger {self._name} began a ledger"
        )

    async def close_writer(self) -> int:
        """Close the open ledger after what is in flight; return when that was.

        Raises:
            Fenced: if there is another owner.
        """
        assert self.writer is not None, "there is no open ledger"
        try:
            last = await self.writer.close()
        except Fenced as error:
            last = await self._end_of_taken(error)
        assert last == self.chain.open_entries - 1, (
            f"ledger {self.chain.open_id} was closed at entry {last}, "
            f"but {self.chain.open_entries} entries were reported durable"
        )
        return self._env.runtime.clock.wall_ms()

    async def _end_of_taken(self, error: Fenced) -> int:
        """Learn where the open ledger ends, which somebody else has opened; settle what it has.

        So do those who only repair ledgers, such as BookKeeper's auto-recovery. Another owner
        does, too, but writes the chain then: of two that go on, the chain takes one. It is given
        time for that; and who was met twice is an owner, or will have to be treated as one.

        Raises:
            Fenced: if there is another owner, as far as that can be seen.
        """
        now_s = self._env.runtime.clock.monotonic_s()
        before_s, self._fenced_s = self._fenced_s, now_s
        if now_s - before_s < limits.FENCED_AGAIN_S:
            raise Fenced(
                f"ledgers of managed ledger {self._name} are taken one after the other, which "
                f"another owner does: {error}"
            ) from error
        await asyncio.sleep(limits.FENCED_PATIENCE_S)
        await self.node.check()
        chain, appender = self.chain, self.appender
        ledger_id = chain.open_id
        assert ledger_id is not None, "a ledger that was taken was open"
        assert appender is not None, "who appends is known before anything is appended"
        place = LedgerPlace(ledger_id, chain.open_stamp)
        last = (await open_ledger(self._name, self._env.ledgers, place)).last_entry_id
        unsettled = await appender.unsettled()
        stored = range(chain.open_entries, last + 1)
        if not chain.open_entries - 1 <= last < chain.open_entries + unsettled:
            raise StorageError(
                f"ledger {ledger_id} of managed ledger {self._name} was opened by others and ends "
                f"at entry {last}, but {chain.open_entries} entries were durable and {unsettled} "
                "under way"
            )
        appender.settle(stored)
        _log.warning(
            "ledger_taken",
            name=self._name,
            ledger=ledger_id,
            last_entry=last,
            found_stored=len(stored),
            reason=str(error),
        )
        return last

    async def leave_writer(self) -> None:
        """Close the open ledger, if there is one and it can be closed, and write no more."""
        if self.writer is None:
            return
        try:
            await self.writer.close()
        except AnabranchError as error:
            # Whoever opens it next recovers the ledger, so nothing depends on this.
            _log.info("ledger_left_unclosed", name=self._name, error=str(error))
        self.writer = None

    async def terminate(self, properties: Mapping[str, str]) -> Position:
        """Close the open ledger for good, and set some properties in the same write."""
        closed_ms = await self.close_writer()
        spans = (*self.chain.closed, self.chain.closing_span(closed_ms))
        position = self.chain.last_confirmed
        merged = {**self.document.properties, **properties}
        ended = replace(self.document, spans=spans, terminated=position, properties=merged)
        await self._publish(ended)
        self.chain.roll(closed_ms, None)
        self.writer = None
        return position

    async def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set properties, or remove those whose new value is None."""
        merged = {**self.document.properties, **changes}
        properties = {key: value for key, value in merged.items() if value is not None}
        await self._publish(replace(self.document, spans=self.chain.spans, properties=properties))

    async def unlink_oldest(self, count: int) -> list[LedgerPlace]:
        """Take the oldest ledgers out of the chain; return those that may be deleted now."""
        removed = [span.place for span in self.chain.closed[:count]]
        await self._publish(replace(self.document, spans=self.chain.spans[count:]))
        self.chain.drop_oldest(count)
        return removed

    async def claim(self) -> None:
        """Write the node as it is, to be sure that it is still ours."""
        await self._publish(self.document)

    async def remove(self) -> None:
        """Delete the node, which must have no cursors left, and then every ledger."""
        await self.node.delete()
        for span in self.chain.spans:
            await discard_ledger(self._env.ledgers, span.place)

    async def _publish(self, document: ChainDocument) -> None:
        await self.node.write(encode_chain(document))
        self.document = document
