"""Carrying out a batch: requests of their own, those of a wave under way together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from anabranch.errors import AnabranchError
from anabranch.metadata.paths import parent_of
from anabranch.metadata.store import Condition, Operation, Outcome, Put
from anabranch.metadata.zookeeper.batching import Wave, waves
from anabranch.metadata.zookeeper.writing import Writer


async def write_together(
    writer: Writer,
    exists: Callable[[str], Awaitable[bool]],
    operations: Sequence[tuple[int, Operation]],
    outcomes: list[Outcome],
) -> None:
    """Carry out checked operations, and note what became of each at its place."""
    for wave in waves(operations):
        await _make_parents(writer, exists, wave)
        written = await asyncio.gather(
            *(writer.write(operation, create_first=True) for _, operation in wave),
            return_exceptions=True,
        )
        for (place, _), outcome in zip(wave, written, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, AnabranchError):
                raise outcome
            outcomes[place] = outcome


async def _make_parents(
    writer: Writer, exists: Callable[[str], Awaitable[bool]], wave: Wave
) -> None:
    """So that not each of many new siblings finds out by itself that there is no parent."""
    creating = [
        operation.path
        for _, operation in wave
        if isinstance(operation, Put)
        and isinstance(operation.expected, Condition)
        and operation.guard is None
    ]
    if len(creating) < 2:
        return
    parents = list(dict.fromkeys(parent_of(path) for path in creating))
    there = await asyncio.gather(*(exists(parent) for parent in parents))
    for parent, is_there in zip(parents, there, strict=True):
        if not is_there:
            try:
                await writer.make_parents(f"{parent}/x", None, None)
            except AnabranchError:
                continue  # those who need it find out, and say so
