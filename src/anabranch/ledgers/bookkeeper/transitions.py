"""The changes of a ledger's metadata: another ensemble, in recovery, closed.

Each is a conditional write. Whoever finds other metadata than expected reads them and decides anew.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    Fenced,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.ledgers.bookkeeper.ensemble import with_segment
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata, State
from anabranch.ledgers.bookkeeper.ledger_registry import Found, LedgerRegistry
from anabranch.telemetry import get_logger

RECOVERED_KEY: Final = "anabranch.recovered"
"""Custom metadata of a ledger that was not closed by its writer."""
_log: Final = get_logger("bookkeeper")


async def change_ensemble(
    registry: LedgerRegistry,
    known: Found,
    first_entry_id: int,
    bookies: tuple[str, ...],
    wait_s: float,
    waited_for: Callable[[], bool],
) -> Found:
    """Write down that a writer's entries from some entry on are on these bookies.

    Until the metadata store has answered nobody can tell where entries belong, so this tries on,
    but begins no attempt after `wait_s` in which it was `waited_for`: whoever waits for the entries
    must be told some time.

    Raises:
        Fenced: if the ledger is not the writer's any more.
        Unreachable: if the metadata store was away for too long.
        OutcomeUnknown: the same, and it may have been written.
        AnabranchError: if trying on makes no sense, such as with a store that was closed.
    """
    present = known
    delay_s = limits.BOOKKEEPER_METADATA_RETRY_S
    loop = asyncio.get_running_loop()
    gives_up_s = loop.time() + wait_s
    while True:
        metadata = present.metadata
        _check_own(metadata)
        last = metadata.segments[-1]
        if (last.first_entry_id, last.bookies) == (first_entry_id, bookies):
            return present
        if last.bookies != known.metadata.segments[-1].bookies:
            raise Fenced(f"the ensemble of ledger {metadata.ledger_id} was changed by others")
        segments = with_segment(metadata.segments, first_entry_id, bookies)
        try:
            try:
                return await registry.replace(replace(metadata, segments=segments), present.version)
            except BadVersion:
                present = await registry.read(metadata.ledger_id)
        except NotFound:
            raise Fenced(f"ledger {metadata.ledger_id} was deleted") from None
        except AnabranchError as error:
            if not (error.retriable or isinstance(error, OutcomeUnknown)):
                raise
            if not waited_for():
                gives_up_s = loop.time() + wait_s
            elif loop.time() + delay_s > gives_up_s:
                raise
            _log.warning("ensemble_change_waits", ledger=metadata.ledger_id, reason=str(error))
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, limits.BOOKKEEPER_METADATA_RETRY_S_MAX)


async def close_written(
    registry: LedgerRegistry, known: Found, last_entry_id: int, length: int
) -> Found:
    """Close a ledger as its writer.

    Raises:
        Fenced: if it is not the writer's any more.
        Unreachable: if the metadata store cannot be asked.
        OutcomeUnknown: if that cannot tell either whether it was closed.
    """
    present = known
    while True:
        metadata = present.metadata
        wanted = replace(metadata, state=State.CLOSED, last_entry_id=last_entry_id, length=length)
        if metadata == wanted and RECOVERED_KEY not in metadata.custom_metadata:
            return present  # by ourselves, in an attempt that had no answer
        _check_own(metadata)
        try:
            return await registry.replace(wanted, present.version)
        except BadVersion:
            pass
        except NotFound:
            raise Fenced(f"ledger {metadata.ledger_id} was deleted") from None
        try:
            present = await registry.read(metadata.ledger_id)
        except NotFound:
            raise Fenced(f"ledger {metadata.ledger_id} was deleted") from None


def _check_own(metadata: LedgerMetadata) -> None:
    if metadata.state is not State.OPEN:
        raise Fenced(
            f"ledger {metadata.ledger_id} is {metadata.state.name}: somebody else has opened it"
        )


async def begin_recovery(registry: LedgerRegistry, known: Found) -> Found:
    """Say that a ledger is being recovered, unless it is closed.

    Raises:
        NotFound: if it was deleted.
    """
    present = known
    while present.metadata.state is State.OPEN:
        wanted = replace(present.metadata, state=State.IN_RECOVERY)
        try:
            return await registry.replace(wanted, present.version)
        except BadVersion:
            present = await registry.read(present.metadata.ledger_id)
    return present


async def close_recovered(
    registry: LedgerRegistry,
    found: Found,
    last_entry_id: int,
    length: int,
    segments: tuple[EnsembleSegment, ...],
) -> Found:
    """Close a ledger that was recovered, with the segments that its last one became.

    If others have closed it meanwhile, what they found is what counts.

    Raises:
        NotFound: if it was deleted.
        Unreachable: if the metadata store cannot be asked, or others recover it differently.
    """
    started = found.metadata.segments
    tail = segments[len(started) - 1 :]
    present = found
    while True:
        metadata = present.metadata
        if metadata.state is State.CLOSED:
            return present
        if len(metadata.segments) != len(started) or metadata.segments[-1] != started[-1]:
            raise Unreachable(f"the ensemble of ledger {metadata.ledger_id} changed: recover again")
        wanted = replace(
            metadata,
            state=State.CLOSED,
            last_entry_id=last_entry_id,
            length=length,
            segments=(*metadata.segments[:-1], *tail),
            custom_metadata=MappingProxyType({**metadata.custom_metadata, RECOVERED_KEY: b""}),
        )
        try:
            return await registry.replace(wanted, present.version)
        except BadVersion:
            present = await registry.read(metadata.ledger_id)
