"""Whether the metadata of a store are being moved, or were moved away. Looks, and no more."""

import json
from typing import Final

from anabranch.metadata.announced import OPERATIONS, read_announced
from anabranch.metadata.store import MetadataStore

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
    flag = await store.get(_PULSARS_FLAG)
    if flag is not None:
        phase = _pulsars_phase(flag.value)
        if phase not in _PULSARS_HARMLESS:
            return f"{_PULSARS_FLAG} is in the phase {phase!r}: names may be in another store"
    return ""


def _pulsars_phase(value: bytes) -> str:
    try:
        return str(json.loads(value)["phase"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
