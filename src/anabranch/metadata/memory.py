"""The metadata store that lives and dies with its process. Only the factory names it."""

import asyncio
from collections.abc import Sequence

from anabranch.errors import AnabranchError
from anabranch.metadata.local_tree import LocalTreeReads, check_operation, split_checked
from anabranch.metadata.store import ANY, Delete, Expected, Operation, Outcome, Put, Stat
from anabranch.metadata.tree import Tree
from anabranch.runtime import Clock

_EPOCH = 1


class MemoryStore(LocalTreeReads):
    """A tree in memory."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Tree())
        self._clock = clock

    async def put(self, path: str, value: bytes, expected: Expected = ANY) -> Stat:
        """See `MetadataStore.put`."""
        outcome = self._write_one(Put(path, value, expected))
        assert outcome is not None
        return outcome

    async def delete(self, path: str, expected: Expected = ANY) -> None:
        """See `MetadataStore.delete`."""
        self._write_one(Delete(path, expected))

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        for number, (places, command) in enumerate(split_checked(operations, outcomes)):
            if number > 0:
                await asyncio.sleep(0)
                self._check_open()
            for place, outcome in zip(places, self._apply(command), strict=True):
                outcomes[place] = outcome
        return outcomes

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        self._closed = True
        self._history.close()

    def _write_one(self, operation: Operation) -> Stat | None:
        self._check_open()
        check_operation(operation)
        (outcome,) = self._apply([operation])
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome

    def _apply(self, command: Sequence[Operation]) -> list[Outcome]:
        applied = self._tree.apply(command, epoch=_EPOCH, wall_ms=self._clock.wall_ms())
        self._history.publish(applied.events)
        return applied.outcomes
