"""Whether the metadata of a store are being moved, or were moved away. Looks, and no more."""

import json
from typing import Final

from anabranch.errors import ConflictError
from anabranch.metadata.announced import OPERATIONS, RESERVED_PATH, read_announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.succession import SUCCEEDS_PATH

_HARMLESS: Final = ("rolled back", "aborted", "failed")
"""Phases in which an operation is over, and the store is in use as before."""
_PULSARS_FLAG: Final = "/pulsar/migration-coordinator/migration"
_PULSARS_HARMLESS: Final = ("NOT_STARTED", "FAILED")


async def operation_under_way(store: MetadataStore) -> str:
    """Say which operation makes that these metadata may not be all there are; empty if none does.

    Raises:
        FormatError: if a journal cannot be read.
    """
    async for node in store.scan(OPERATIONS):
        if node.stat.path.endswith("/journal"):
            phase = read_announced(node.value).phase
            if phase not in _HARMLESS:
                return f"{node.stat.path} is in the phase {phase!r}: names may be in another store"
    if await store.exists(RESERVED_PATH) and not await store.exists(SUCCEEDS_PATH):
        return f"{RESERVED_PATH} says that this is a copy of a store which is still needed"
    flag = await store.get(_PULSARS_FLAG)
    if flag is not None:
        phase = _pulsars_phase(flag.value)
        if phase not in _PULSARS_HARMLESS:
            return f"{_PULSARS_FLAG} is in the phase {phase!r}: names may be in another store"
    return ""


async def refuse_while_moved(store: MetadataStore) -> None:
    """Let nothing be removed because these metadata do not name it, while they are being moved.

    Raises:
        ConflictError: saying which operation is in the way.
    """
    if words := await operation_under_way(store):
        raise ConflictError(
            f"{words}; so what is needed is not known, and nothing was removed: end the operation "
            "first, or give the metadata store that is in use"
        )


def _pulsars_phase(value: bytes) -> str:
    try:
        return str(json.loads(value)["phase"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
