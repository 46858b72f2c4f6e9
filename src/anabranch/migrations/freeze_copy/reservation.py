"""Which targets may be taken: `switchable.reserved` has the document that says whose one is.

A target is taken again only if the journal of the store knows that attempt, and that nothing came
of it. Whatever else is found there belongs to somebody.
"""

from typing import Final

from anabranch.errors import ConfigError
from anabranch.metadata.announced import (
    OPERATIONS,
    RESERVED_PATH,
    Announced,
    journal_path,
    past_path,
    read_announced,
)
from anabranch.metadata.features import FEATURES_PATH
from anabranch.metadata.paths import ROOT, join, parent_of
from anabranch.metadata.store import ANY, MetadataStore
from anabranch.metadata.switchable.fence import FENCE_PATH, GENERATION_PATH, PRESENT_PATH
from anabranch.metadata.switchable.reserved import read_reserved, write_reserved
from anabranch.metadata.switchable.succession import succession_of
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.freeze_copy.limits import SHOWN_NODES_MAX

_OURS: Final = (RESERVED_PATH, FENCE_PATH, GENERATION_PATH, PRESENT_PATH)
_CAME_TO_NOTHING: Final = ("rolled back", "aborted", "failed")


async def reserve(target: MetadataStore, source_url: str, attempt: str) -> None:
    """Let everybody know what this store is about to become."""
    await target.put(RESERVED_PATH, write_reserved(source_url, attempt), ANY)


async def refuse_copy(store: MetadataStore) -> None:
    """Make sure that a store is not one that is being made a copy, and not yet in use for good.

    Raises:
        ConfigError: if it is: whoever takes no part may write what nobody brings back.
    """
    node = await store.get(RESERVED_PATH)
    holder = None if node is None else read_reserved(node.value)
    if holder is None:
        return
    found = await succession_of(store)
    if found is None or found.attempt != holder.attempt:
        raise ConfigError(
            f"this store is a copy of {holder.source} and not in use for good: ask a server "
            "of the cluster, or wait for finalize. If nothing came of that attempt, delete "
            f"{OPERATIONS} from this store first; nothing was changed"
        )


async def occupied_by(
    target: MetadataStore, source: MetadataStore, source_url: str, kind: str, present: str = ""
) -> list[str]:
    """What a target has that no earlier attempt from this store has put there.

    Args:
        target: looked at.
        source: has the journal.
        source_url: where that is.
        kind: of the operation.
        present: the attempt that runs, if one does.
    """
    node = await target.get(RESERVED_PATH)
    if node is None:
        return await _nodes_of_others(target)
    holder = read_reserved(node.value)
    if holder is None:
        return [f"{RESERVED_PATH}, which is no document that this build knows"]
    of, attempt = holder
    if of != shown(source_url):
        return [f"a copy of {of}"]
    if attempt != present and not await _came_to_nothing(source, kind, attempt):
        return [f"a copy of {of} that attempt {attempt} has made: it may be in use"]
    used = [join(OPERATIONS, name) for name in await target.children(OPERATIONS)]
    return [path for path in used if path not in _OURS][:SHOWN_NODES_MAX]


async def _nodes_of_others(target: MetadataStore) -> list[str]:
    own = parent_of(FEATURES_PATH)
    found = [f"/{name}" for name in await target.children(ROOT) if f"/{name}" != own]
    # A store that one of our servers keeps says from the start for which builds it is.
    found += [
        path for name in await target.children(own) if (path := join(own, name)) != FEATURES_PATH
    ]
    return found[:SHOWN_NODES_MAX]


async def _came_to_nothing(source: MetadataStore, kind: str, attempt: str) -> bool:
    tries: list[Announced] = []
    node = await source.get(journal_path(kind))
    if node is not None:
        tries.append(read_announced(node.value))
    past = parent_of(past_path(kind, 0))
    tries += [
        read_announced(earlier.value)
        async for earlier in source.scan(past)
        if earlier.stat.path != past
    ]
    ends = [found.phase for found in tries if found.attempt == attempt]
    return bool(ends) and all(phase in _CAME_TO_NOTHING for phase in ends)
