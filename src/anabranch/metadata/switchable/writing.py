"""Writes to a store that can be replaced.

A write passes the gate, goes to the store in use with that store's own tokens, and is acknowledged
only if it is certain that it came before the copy of that store was completed: the lease of this
process's registration ran all the time, or the journal of the migration says so afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from anabranch.errors import AnabranchError, Fenced, OutcomeUnknown, Unreachable
from anabranch.metadata.store import (
    ANY,
    Delete,
    Expected,
    Guard,
    IndexKey,
    Operation,
    Outcome,
    Put,
    Record,
    Stat,
)
from anabranch.metadata.switchable.limits import FENCED_TRIES_MAX, TURN_LOOK_S
from anabranch.metadata.switchable.participation import Participation
from anabranch.metadata.switchable.postures import posture_of


class GatedWrites(Participation):
    """The writing half of `MetadataStore`."""

    async def put(
        self,
        path: str,
        value: bytes,
        expected: Expected = ANY,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        indexes: tuple[IndexKey, ...] = (),
        guard: Guard | None = None,
    ) -> Stat:
        """See `MetadataStore.put`; `Unreachable` if a switch takes too long."""
        if not ephemeral and self.is_plain and self.gate.enter():
            try:
                return await self.route.store.put(
                    path, value, expected, sequential=sequential, indexes=indexes, guard=guard
                )
            finally:
                self.gate.leave()
        stat = await self._write(Put(path, value, expected, ephemeral, sequential, indexes, guard))
        assert stat is not None
        return stat

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`; `Unreachable` if a switch takes too long."""
        await self._write(Delete(path, expected, guard))

    async def _write(self, operation: Operation) -> Stat | None:
        for _ in range(FENCED_TRIES_MAX):
            await self.gate.pass_in()
            try:
                return await self._write_once(operation)
            except Fenced:
                if operation.guard is not None or self.fence is None:
                    raise
            finally:
                self.gate.leave()
            await self._look_at_fence()
        raise Unreachable(f"{operation.path} was not written: the store is being replaced")

    async def _write_once(self, operation: Operation) -> Stat | None:
        route, session, before = self.route, self.witness.session, self.announced
        sent = operation if route.transparent else await route.own_operation(operation)
        if sent.guard is None and self.fence is not None:
            sent = sent._replace(guard=self.fence)
        try:
            if isinstance(sent, Put):
                path, value, expected, ephemeral, sequential, indexes, guard = sent
                stat = await route.store.put(
                    path,
                    value,
                    expected,
                    ephemeral=ephemeral,
                    sequential=sequential,
                    indexes=indexes,
                    guard=guard,
                )
            else:
                stat = None
                await route.store.delete(sent.path, sent.expected, guard=sent.guard)
        except OutcomeUnknown:
            self._doubt(operation)
            raise
        self._note(operation, stat)
        if not self.is_sure(session):
            await self.vouch(before, route)
        return None if stat is None else route.shown_stat(stat)

    def _note(self, operation: Operation, stat: Stat | None) -> None:
        """Remember which ephemeral nodes are this process's."""
        if isinstance(operation, Delete):
            self.own.removed(operation.path)
        elif stat is not None and stat.created_by_self:
            self.own.made(stat)

    def _doubt(self, operation: Operation) -> None:
        """Remember which ephemeral nodes may be this process's."""
        if isinstance(operation, Put) and operation.ephemeral:
            self.own.doubted(operation)

    async def _look_at_fence(self) -> None:
        """The store refuses this process's writes: find out whether that is for long."""
        await asyncio.sleep(TURN_LOOK_S)
        if self.fence is None or self.gate.closed:
            return
        route = self.route
        node = await route.store.get(self.fence.path)
        # The fence is raised after a hold was announced: so if none is announced by now, this is
        # the fence of an attempt that is over, and not of one that leaves this process behind.
        now = posture_of(await self.read_journal())
        stays = now.on == route.name and not now.holds and route is self.route
        if stays and node is not None and self.fence is not None:
            self.fence = Guard(self.fence.path, node.stat.version)

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`; `Unreachable` if a switch takes too long."""
        outcomes: list[Outcome] = [None] * len(operations)
        places = list(range(len(operations)))
        for _ in range(FENCED_TRIES_MAX):
            await self.gate.pass_in()
            try:
                places = await self._batch_once(operations, places, outcomes)
            finally:
                self.gate.leave()
            if not places:
                return outcomes
            await self._look_at_fence()
        return outcomes

    async def _batch_once(
        self, operations: Sequence[Operation], places: list[int], outcomes: list[Outcome]
    ) -> list[int]:
        """Carry out those at some places; returns the places of those that were fenced off."""
        route, session, before, fence = self.route, self.witness.session, self.announced, self.fence
        sent: list[Operation] = []
        asked: list[int] = []
        for place in places:
            operation = operations[place]
            try:
                own = operation if route.transparent else await route.own_operation(operation)
            except AnabranchError as refusal:
                outcomes[place] = refusal
                continue
            if own.guard is None and fence is not None:
                own = own._replace(guard=fence)
            sent.append(own)
            asked.append(place)
        try:
            answers = await route.store.batch(sent)
        except OutcomeUnknown:
            for operation in sent:
                self._doubt(operation)
            raise
        again: list[int] = []
        for place, answer in zip(asked, answers, strict=True):
            operation = operations[place]
            if isinstance(answer, Fenced) and operation.guard is None and fence is not None:
                again.append(place)
            outcomes[place] = route.shown_stat(answer) if isinstance(answer, Stat) else answer
            if not isinstance(answer, AnabranchError):
                self._note(operation, answer)
            elif isinstance(answer, OutcomeUnknown):
                self._doubt(operation)
        if not self.is_sure(session):
            await self.vouch(before, route)
        return again

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`; `Unreachable` if a switch takes too long."""
        await self.gate.pass_in()
        try:
            route, session, before = self.route, self.witness.session, self.announced
            restored = await route.store.restore(records)
            if not self.is_sure(session):
                await self.vouch(before, route)
            return restored
        finally:
            self.gate.leave()
