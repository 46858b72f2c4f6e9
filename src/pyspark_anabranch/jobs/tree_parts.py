"""Cuts a tree of metadata into parts that tasks can read by themselves, in path order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.metadata.paths import join, order_key
from anabranch.metadata.store import MetadataStore, Record
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.migrations.engine.bulk_places import or_nothing, tree_of
from anabranch.runtime import Runtime

CHILDREN_CUT_MAX: Final = 4096
"""A node with more children is read as a whole: one stream is faster than so many questions."""
_OWN_PROCESS: Final = ("embedded", "memory")


@dataclass(frozen=True, slots=True)
class TreePart:
    """Some nodes alone, then some whole subtrees."""

    alone: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    async def records(
        self, store: MetadataStore, place: StorePlace, runtime: Runtime
    ) -> AsyncIterator[Record]:
        """What a store has of it."""
        for path in self.alone:
            record = await store.record(path)
            if record is not None:
                yield record
        for path in self.below:
            async for record in or_nothing(tree_of(store, place, path, runtime).records()):
                yield record


NOTHING: Final = TreePart()


def is_shared(place: StorePlace) -> bool:
    """Whether several processes can have a store open at once."""
    return place.url.partition(":")[0] not in _OWN_PROCESS


async def cut(stores: Sequence[MetadataStore], prefix: str, wanted: int) -> list[TreePart]:
    """Parts of the tree that several stores have together; the first has the nodes above all."""
    alone: list[str] = []
    whole: list[str] = []
    level = [prefix]
    while level and len(level) + len(whole) < wanted:
        names = await asyncio.gather(*(_children(stores, path) for path in level))
        deeper: list[str] = []
        for path, children in zip(level, names, strict=True):
            if len(children) > CHILDREN_CUT_MAX:
                whole.append(path)
            else:
                alone.append(path)
                deeper += (join(path, name) for name in children)
        level = deeper
    below = sorted((*whole, *level), key=order_key)
    size = max(1, -(-len(below) // wanted))
    parts = [TreePart((), tuple(below[at : at + size])) for at in range(0, len(below), size)]
    return [TreePart(tuple(sorted(alone, key=order_key))), *parts]


async def _children(stores: Sequence[MetadataStore], path: str) -> list[str]:
    found = await asyncio.gather(*(store.children(path) for store in stores))
    return sorted({name for names in found for name in names})
