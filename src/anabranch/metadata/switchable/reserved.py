"""Whose a target is: a document on it names the store it is a copy of, and the attempt.

An address alone does not say which store it leads to: `localhost` is another one on each host. So
whoever turns to a target, or writes to it, looks first whether it is the one that was prepared.
"""

import json
from typing import Any, Final, NamedTuple

from anabranch.errors import ConflictError
from anabranch.metadata.announced import RESERVED_PATH, Announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.transfer.sources import shown

_MAGIC: Final = "anabranch-reserved-store"
_VERSION: Final = 1


class Reserved(NamedTuple):
    """What the document says."""

    source: str
    """The address of the store that is copied, without secrets."""
    attempt: str


def write_reserved(source_url: str, attempt: str) -> bytes:
    """The document."""
    fields = {"source": shown(source_url), "attempt": attempt}
    return json.dumps({"magic": _MAGIC, "version": _VERSION, **fields}).encode()


def read_reserved(value: bytes) -> Reserved | None:
    """Undo `write_reserved`; None if it is no document that this build knows."""
    try:
        document: Any = json.loads(value)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    if (document.get("magic"), document.get("version")) != (_MAGIC, _VERSION):
        return None
    return Reserved(str(document.get("source")), str(document.get("attempt")))


async def check_prepared(store: MetadataStore, announced: Announced) -> None:
    """Make sure that what answers at the address of the target is what the attempt has prepared.

    Not before it has: while it is preparing, nobody can tell.

    Raises:
        ConflictError: if it is another store.
    """
    node = await store.get(RESERVED_PATH)
    found = None if node is None else read_reserved(node.value)
    if found is None or found.attempt != announced.attempt:
        target = shown(announced.parameters.get("target", ""))
        raise ConflictError(
            f"what answers at {target} from here is not the store that attempt {announced.attempt} "
            "has prepared: the address has to lead every process to the same store"
        )
