"""A store that was left for good says so, and to what it was left.

A process that can take part in a migration finds the other store by the journal. One that was not
told of any target would go on with the old store as if nothing had happened: the seal keeps it out.
"""

import json
from typing import Final

from anabranch.errors import ConfigError, FormatError
from anabranch.metadata.announced import OPERATIONS
from anabranch.metadata.store import MetadataStore

SEAL_PATH: Final = f"{OPERATIONS}/sealed"
_MAGIC: Final = "anabranch-sealed-store"
_VERSION: Final = 1


async def seal(store: MetadataStore, attempt: str, target: str) -> None:
    """Have nobody use a store any more who is not led to the next one; may be done twice."""
    document = {"magic": _MAGIC, "version": _VERSION, "attempt": attempt, "target": target}
    await store.put(SEAL_PATH, json.dumps(document).encode())


async def check_not_sealed(store: MetadataStore, setting: str = "metadata_url") -> None:
    """Make sure that a store, which a setting names, was not left for another one.

    Raises:
        ConfigError: if it was, naming that one.
        FormatError: if the seal is of a version that this build does not know.
    """
    node = await store.get(SEAL_PATH)
    if node is None:
        return
    try:
        document = json.loads(node.value)
        known = document["magic"] == _MAGIC and document["version"] == _VERSION
        target = str(document["target"])
    except (ValueError, KeyError, TypeError):
        known, target = False, ""
    if not known:
        raise FormatError(f"{SEAL_PATH} is not a document that this build knows")
    raise ConfigError(f"this metadata store was replaced by {target}: set {setting} to that one")
