"""Writes of a process that takes no part in replacing its store, such as a command.

Nobody waits for it, so it has to look for itself: before it writes, whether the store can be
written now, and afterwards, whether what it wrote is in every copy that others may come to use.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.errors import AnabranchError, ConfigError, OutcomeUnknown, Unreachable
from anabranch.metadata.announced import Announced, journal_path, read_announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.postures import SOURCE, counts_still, posture_of
from anabranch.metadata.transfer.sources import shown


@asynccontextmanager
async def counted(store: MetadataStore, kind: str) -> AsyncIterator[None]:
    """Around writes to a store that an operation of a kind may replace.

    Raises:
        Unreachable: if writes wait; nothing was changed.
        ConfigError: if the store was left, naming the one that is in use; nothing was changed.
        OutcomeUnknown: if what was written may be in no store that others use.
    """
    before = await look(store, kind)
    yield
    try:
        now = await _announced(store, kind)
    except AnabranchError as error:
        raise OutcomeUnknown(
            f"it was written, but maybe to a store that was left: {error}"
        ) from None
    if not counts_still(before, now, SOURCE):
        raise OutcomeUnknown(
            f"the store was being replaced by {_target(now)} while it was written: look there, too"
        )


async def look(store: MetadataStore, kind: str) -> Announced | None:
    """What is announced now, if writes are taken; see `counted` for what is raised otherwise."""
    found = await _announced(store, kind)
    check_takes_writes(found)
    return found


def check_takes_writes(announced: Announced | None) -> None:
    """Make sure that somebody who takes no part may write now; see `counted`."""
    posture = posture_of(announced)
    if posture.on != SOURCE:
        raise ConfigError(
            f"this store was left for {_target(announced)}: what is written here is lost; nothing "
            "was changed"
        )
    if posture.holds:
        raise Unreachable(
            f"this store is just being replaced by {_target(announced)}: nothing was changed; try "
            "again"
        )


async def _announced(store: MetadataStore, kind: str) -> Announced | None:
    await store.sync()
    node = await store.get(journal_path(kind))
    return None if node is None else read_announced(node.value)


def _target(announced: Announced | None) -> str:
    return "another" if announced is None else shown(announced.parameters.get("target", ""))
