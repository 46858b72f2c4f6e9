"""A process with many ephemeral nodes makes them anew together: writes wait meanwhile."""

import asyncio
from typing import Any

from anabranch.metadata.store import MetadataStore, Version
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.staged_replacement import TARGET_URL, staged

NODES = 100


class Crowd:
    """How many ephemeral nodes are made at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0


class SlowTarget(PassThrough):
    """A store that takes its time for each ephemeral node."""

    def __init__(self, behind: MetadataStore, crowd: Crowd) -> None:
        super().__init__(behind)
        self._crowd = crowd

    async def put(self, path: str, *rest: Any, ephemeral: bool = False, **more: Any) -> Any:
        if not path.startswith("/namespace"):
            return await super().put(path, *rest, ephemeral=ephemeral, **more)
        crowd = self._crowd
        crowd.now += 1
        crowd.most = max(crowd.most, crowd.now)
        await asyncio.sleep(0.02)
        try:
            return await super().put(path, *rest, ephemeral=ephemeral, **more)
        finally:
            crowd.now -= 1


async def versions(store: MetadataStore, paths: list[str]) -> list[Version]:
    nodes = [await store.get(path) for path in paths]
    return [node.stat.version for node in nodes if node is not None]


async def test_ephemeral_nodes_are_made_anew_together() -> None:
    crowd = Crowd()
    async with staged() as stage:

        async def open_store(url: str) -> MetadataStore:
            store = await stage.open_store(url)
            return SlowTarget(store, crowd) if url == TARGET_URL else store

        member = await stage.join("ash", open_store=open_store)
        paths = [f"/namespace/public/{number}" for number in range(NODES)]
        for path in paths:
            await member.store.put(path, b"ash", ephemeral=True)
        before = await versions(member.store, paths)
        await stage.switch()
        assert await versions(member.store, paths) == before, "held, under the same tokens"
        assert len(before) == NODES
        assert 10 <= crowd.most <= 64
