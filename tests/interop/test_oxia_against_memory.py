"""The store on a real Oxia beside one in memory: the same operations have the same outcomes.

Random operations from a few seeds, alone and in batches, over a small tree, so that they meet.
Sequential nodes are left out: Oxia never gives out a number again, not even below a parent that was
deleted and made anew.
"""

import random
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    Expected,
    Guard,
    MetadataStore,
    Operation,
    Put,
    Stat,
    Version,
)
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.oxia import Oxia, oxia

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]
STEPS = 250


@pytest.fixture(scope="module", params=[1, 3], ids=["1-shard", "3-shards"])
def server(request: pytest.FixtureRequest) -> Iterator[Oxia]:
    with oxia(request.param) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def stores(server: Oxia) -> AsyncIterator[tuple[MetadataStore, MetadataStore]]:
    memory = await open_store("memory:", real_runtime())
    other = await open_store(server.url, real_runtime(), session_timeout_s=10)
    yield memory, other
    await memory.close()
    await other.close()


class Twins:
    """Draws operations for two stores; versions stand for each other by when they were issued."""

    def __init__(self, seed: int, top: str) -> None:
        self.draw = random.Random(seed)
        self.top = top
        self.versions: list[tuple[str, Version, Version]] = []

    def path(self) -> str:
        names = self.draw.choices(("a", "b", "a-b"), k=self.draw.randint(1, 3))
        return "/".join((self.top, *names))

    def operation(self) -> tuple[Operation, Operation]:
        path = self.path()
        expected: tuple[Expected, Expected] = (ANY, ANY)
        kind = self.draw.random()
        if kind < 0.25:
            expected = (ABSENT, ABSENT)
        elif kind < 0.6 and self.versions:
            path, *tokens = self.draw.choice(self.versions[-12:])
            expected = (tokens[0], tokens[1])
        guards: tuple[Guard | None, Guard | None] = (None, None)
        if self.versions and self.draw.random() < 0.15:
            guard_path, *tokens = self.draw.choice(self.versions[-6:])
            guards = (Guard(guard_path, tokens[0]), Guard(guard_path, tokens[1]))
        if self.draw.random() < 0.3:
            one, two = (Delete(path, e, g) for e, g in zip(expected, guards, strict=True))
            return one, two
        value = self.draw.randbytes(self.draw.randint(0, 4))
        owned = self.draw.random() < 0.1
        first, second = (
            Put(path, value, e, owned, guard=g) for e, g in zip(expected, guards, strict=True)
        )
        return first, second

    def compare(self, outcomes: tuple[object, object]) -> None:
        one, two = outcomes
        assert type(one) is type(two), outcomes
        if isinstance(one, Stat) and isinstance(two, Stat):
            assert (one.path, one.version.native, one.ephemeral, one.created_by_self) == (
                two.path,
                two.version.native,
                two.ephemeral,
                two.created_by_self,
            )
            self.versions.append((one.path, one.version, two.version))


async def outcome_of(store: MetadataStore, operation: Operation) -> object:
    try:
        if isinstance(operation, Delete):
            return await store.delete(operation.path, operation.expected, guard=operation.guard)
        return await store.put(
            operation.path,
            operation.value,
            operation.expected,
            ephemeral=operation.ephemeral,
            guard=operation.guard,
        )
    except AnabranchError as refusal:
        return refusal


async def shown(store: MetadataStore, top: str) -> list[object]:
    return [
        (node.stat.path, node.value, node.stat.version.native, node.stat.ephemeral)
        async for node in store.scan(top)
    ]


@pytest.mark.goal("core.M2", part="oxia")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_same_outcomes(seed: int, stores: tuple[MetadataStore, MetadataStore]) -> None:
    memory, other = stores
    twins = Twins(seed, f"/twin{seed}")
    for step in range(STEPS):
        if step % 5:
            one, two = twins.operation()
            twins.compare((await outcome_of(memory, one), await outcome_of(other, two)))
        else:
            pairs = [twins.operation() for _ in range(twins.draw.randint(1, 8))]
            ones = await memory.batch([one for one, _ in pairs])
            twos = await other.batch([two for _, two in pairs])
            for pair in zip(ones, twos, strict=True):
                twins.compare(pair)
    assert await shown(other, twins.top) == await shown(memory, twins.top)
