"""What keeps late writers out of a store that was left, and says how often stores were replaced.

The fence is a node: writes that carry its version are refused by the store once it was written
again. It helps only where the store itself looks at guards (`Fencing.SERVER`); elsewhere a writer
is kept from acknowledging by its lease.
"""

import json
from typing import Final

from anabranch.errors import (
    BadVersion,
    ConflictError,
    FormatError,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.metadata.announced import OPERATIONS
from anabranch.metadata.store import ABSENT, Expected, Fencing, Guard, MetadataStore, Revision
from anabranch.metadata.switchable.limits import REJOIN_TRIES_MAX

FENCE_PATH: Final = f"{OPERATIONS}/fence"
PRESENT_PATH: Final = f"{OPERATIONS}/present"
"""Below it, on the target, a node of each process that uses it."""
GENERATION_PATH: Final = f"{OPERATIONS}/generation"
_MAGIC: Final = "anabranch-store-generation"
_VERSION: Final = 1


async def fence_of(store: MetadataStore) -> Guard | None:
    """What a write to this store carries to be fenced; None if the store cannot look at it."""
    if store.fencing is not Fencing.SERVER:
        return None
    node = await store.get(FENCE_PATH)
    if node is None:
        try:
            return Guard(FENCE_PATH, (await store.put(FENCE_PATH, b"", ABSENT)).version)
        except BadVersion:
            node = await store.get(FENCE_PATH)  # somebody else was first
    if node is None:
        raise ConflictError(f"somebody deletes {FENCE_PATH}")
    return Guard(FENCE_PATH, node.stat.version)


async def raise_fence(store: MetadataStore, attempt: str) -> None:
    """Have the store refuse every write that carries what `fence_of` returned before."""
    if store.fencing is Fencing.SERVER:
        await store.put(FENCE_PATH, attempt.encode())


async def generation_of_store(store: MetadataStore) -> int:
    """How many stores came before this one; 0 if nobody says so.

    Raises:
        FormatError: if the document is not ours.
    """
    return (await _generation_and_version(store))[0]


async def _generation_and_version(store: MetadataStore) -> tuple[int, Expected]:
    node = await store.get(GENERATION_PATH)
    if node is None:
        return 0, ABSENT
    try:
        document = json.loads(node.value)
        known = document["magic"] == _MAGIC and document["version"] == _VERSION
        generation = int(document["generation"])
    except (ValueError, KeyError, TypeError):
        known, generation = False, 0
    if not known:
        raise FormatError(f"{GENERATION_PATH} is not a document that this build knows")
    return generation, node.stat.version


async def in_use_since(store: MetadataStore) -> Revision | None:
    """The moment of its history in which a store came into use; None if nobody says so.

    Everything that its users wrote is later, and all that was copied to it before is earlier.
    """
    node = await store.get(GENERATION_PATH)
    return None if node is None else node.stat.revision


async def raise_generation(left: MetadataStore, entered: MetadataStore) -> None:
    """Have tokens of the store that comes into use be larger than all that were ever given out.

    Every switch has a generation of its own, so that a process which slept through one sees it.

    Raises:
        Unreachable: if somebody else does so at the same time; nothing was changed.
    """
    before, _ = await _generation_and_version(left)
    own, version = await _generation_and_version(entered)
    generation = max(before, own) + 1
    document = {"magic": _MAGIC, "version": _VERSION, "generation": generation}
    try:
        await entered.put(GENERATION_PATH, json.dumps(document).encode(), version)
    except BadVersion as error:
        raise Unreachable(f"the generation of a store was raised by another: {error}") from error


async def be_present(store: MetadataStore, name: str) -> None:
    """Let whoever takes this store away again know that a process uses it."""
    path = f"{PRESENT_PATH}/{name}"
    for _ in range(REJOIN_TRIES_MAX):
        node = await store.get(path)
        if node is not None and node.stat.created_by_self:
            return
        try:
            if node is not None:
                # Of this very process, by a session that is over or will be.
                await store.delete(path, node.stat.version)
            await store.put(path, b"", ABSENT, ephemeral=True)
        except (BadVersion, NotFound, OutcomeUnknown):
            continue  # only reading back can tell
        return
    raise Unreachable(f"{path} could not be made: the store does not answer clearly")
