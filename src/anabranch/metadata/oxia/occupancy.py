"""Which nodes have children: asked for many at a time where they have one parent.

A look for the next key above a node's own range would be one small read, but where many keys were
deleted the server has to step over all of them. So only bounded ranges are listed: that of one
node, or one over all children of several siblings.
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from functools import partial

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.paths import parent_of

_TOGETHER_MIN = 8
"""Fewer siblings are asked for one by one."""


def _abandon(asked: dict[str, asyncio.Future[bool]], _: object = None) -> None:
    for future in asked.values():
        if not future.done():
            future.set_exception(AlreadyClosed("the metadata store was closed"))
            future.exception()


class Occupancy:
    """Asks all shards."""

    def __init__(self, client: OxiaClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._asked: dict[str, asyncio.Future[bool]] = {}

    def of(self, path: str) -> asyncio.Future[bool]:
        """Whether a node has children; asked together with others of this turn of the loop."""
        if not self._asked:
            self._loop.call_soon(self._send)
        future = self._asked.get(path)
        if future is None:
            future = self._asked[path] = self._loop.create_future()
        return future

    def _send(self) -> None:
        asked, self._asked = self._asked, {}
        if self._client.tasks.closed:
            _abandon(asked)
        else:
            answering = self._client.tasks.spawn("oxia-occupancy", self._answer(asked))
            answering.add_done_callback(partial(_abandon, asked))

    async def _answer(self, asked: dict[str, asyncio.Future[bool]]) -> None:
        try:
            occupied = await self.among(asked)
        except AnabranchError as error:
            for future in asked.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()
            return
        for path, future in asked.items():
            if not future.done():
                future.set_result(path in occupied)

    async def among(self, paths: Iterable[str]) -> set[str]:
        """Those of the nodes that have children."""
        families: dict[str, list[str]] = {}
        for path in paths:
            families.setdefault(parent_of(path), []).append(path)
        occupied: set[str] = set()
        alone: list[str] = []
        for family in families.values():
            if len(family) < _TOGETHER_MIN:
                alone += family
            else:
                known, left = await self._of_siblings(family)
                occupied |= known
                alone += left
        answers = await asyncio.gather(*map(self._of_one, alone))
        return occupied.union(path for path, answer in zip(alone, answers, strict=True) if answer)

    async def _of_one(self, path: str) -> bool:
        key_range = keys.children_range(path)
        return any(await asyncio.gather(*(link.any_in(key_range) for link in self._client.links)))

    async def _of_siblings(self, family: list[str]) -> tuple[set[str], list[str]]:
        """Who has children, and of whom that is not known because there are too many keys."""
        first = min((keys.children_range(path)[0] for path in family), key=keys.server_order)
        end = max((keys.children_range(path)[1] for path in family), key=keys.server_order)
        wanted = set(family)

        async def parents(link: ShardLink) -> tuple[set[str], bool]:
            found: set[str] = set()
            count = 0
            async with aclosing(link.key_stream((first, end))) as listed:  # type: ignore[type-var]
                async for key in listed:
                    found.add(key[: key.rindex("/")])
                    count += 1
                    if count >= limits.OXIA_LISTED_KEYS_MAX:
                        return found, False
            return found, True

        answers = await asyncio.gather(
            *(link.again("listing", partial(parents, link)) for link in self._client.links)
        )
        occupied = {path for found, _ in answers for path in found if path in wanted}
        if all(whole for _, whole in answers):
            return occupied, []
        return occupied, [path for path in family if path not in occupied]
