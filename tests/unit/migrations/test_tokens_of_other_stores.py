"""A token that one kind of store gave out is good on another kind, once, and only if it is fresh.

Oxia knows a node by how often it was changed and by a number of its own, which it gives to no other
state; both are in the token.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from anabranch.errors import BadVersion
from anabranch.metadata.store import ABSENT, MetadataStore, Record, Version
from anabranch.migrations.engine.table import Verb
from anabranch.testing.model_stores import empty_store_url, model_runtime, modelled_oxia
from anabranch.testing.replaced_stores import Member, Shelf
from anabranch.testing.staged_replacement import LONG_S, failed, until

KINDS = ("memory", "embedded", "zookeeper", "oxia")
MILLION = 1_000_000
PAIRS = [
    *(("oxia", target) for target in KINDS),
    *((source, "oxia") for source in KINDS if source != "oxia"),
]
RESTORED_BY_ZOOKEEPER_MAX = 1000


class Pair:
    """A process on one kind of store, which another kind is to replace."""

    def __init__(self, member: Member, source: MetadataStore, target: MetadataStore) -> None:
        self.store = member.store
        self.source = source
        """Past the process, as is `target`."""
        self.target = target
        self._member = member
        self.target_url = ""

    async def switch(self) -> None:
        await self._member.start(self.target_url)
        await self._member.until("switched", wait_s=LONG_S)
        await until(lambda: self.store.route.name == "target" and not self.store.gate.closed)

    async def followed_back(self, path: str) -> None:
        """Wait until what was written last is on the store that was left, too."""
        async with asyncio.timeout(LONG_S):
            while not await self.source.exists(path):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def roll_back(self) -> None:
        await self._member.ask(Verb.ROLLBACK)
        await self._member.until("rolled back", wait_s=LONG_S)
        await until(lambda: self.store.route.name == "source" and not self.store.gate.closed)


@asynccontextmanager
async def paired(
    source: str, target: str, folder: Path, numbers_given: int = 0
) -> AsyncIterator[Pair]:
    """Of an Oxia, either may have given out some of its numbers before."""
    runtime = model_runtime()
    shelf = Shelf(runtime)
    async with AsyncExitStack() as held:
        held.push_async_callback(shelf.close)
        urls = [
            await held.enter_async_context(modelled_oxia(numbers_given))
            if kind == "oxia"
            else await empty_store_url(kind, f"{folder}/{place}", held)
            for place, kind in (("source", source), ("target", target))
        ]
        member = await Member.open(runtime, "m", urls[0], shelf.open, failed, hold_s=LONG_S)
        held.push_async_callback(member.close)
        raws = [await shelf.open(url) for url in urls]
        for raw in raws:
            held.push_async_callback(raw.close)
        pair = Pair(member, *raws)
        pair.target_url = urls[1]
        yield pair


async def records(*found: Record) -> AsyncIterator[Record]:
    for record in found:
        yield record


async def token_of(store: MetadataStore, path: str) -> Version:
    node = await store.get(path)
    assert node is not None
    return node.stat.version


@pytest.mark.goal("454.A14", part="native ids", broken_by="another_life_counts_as_the_same")
@pytest.mark.goal("rel.A22", part="native ids", broken_by="another_life_counts_as_the_same")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("numbers_given", [0, 2 * MILLION])
@pytest.mark.parametrize("target", KINDS)
async def test_a_token_with_a_number_of_oxia_works_once_and_a_stale_one_never(
    target: str, numbers_given: int, tmp_path: Path
) -> None:
    async with paired("oxia", target, tmp_path, numbers_given) as pair:
        store = pair.store
        for number in range(20):  # so that Oxia's numbers are not those of changes
            await store.put(f"/others/{number}", b"")
        first_life = (await store.put("/made-twice", b"same")).version
        await store.delete("/made-twice", first_life)
        fresh = (await store.put("/made-twice", b"same", ABSENT)).version
        assert fresh.native == first_life.native == 0
        assert first_life.life > numbers_given
        assert fresh.life > first_life.life > fresh.native, "only Oxia's number tells them apart"
        changed = (await store.put("/changed", b"1")).version
        newest = (await store.put("/changed", b"2", changed)).version
        deleted = (await store.put("/deleted", b"")).version
        await store.delete("/deleted", deleted)
        await pair.switch()
        for path, stale in (("/made-twice", first_life), ("/changed", changed)):
            with pytest.raises(BadVersion):
                await store.put(path, b"no", stale)
            with pytest.raises(BadVersion):
                await store.delete(path, stale)
        with pytest.raises(BadVersion):
            await store.put("/deleted", b"no", deleted)
        for path, good in (("/made-twice", fresh), ("/changed", newest)):
            after = (await store.put(path, b"yes", good)).version
            for spent in (good, after._replace(life=good.life)):
                with pytest.raises(BadVersion):
                    await store.put(path, b"no", spent)
            await store.put(path, b"and on", after)
            node = await pair.target.get(path)
            assert node is not None
            assert node.value == b"and on"


@pytest.mark.goal("454.A14", part="native ids", broken_by="restore_pushes_nothing")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [0, 1, RESTORED_BY_ZOOKEEPER_MAX, MILLION])
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
async def test_a_version_is_kept_where_the_target_can_and_its_token_is_good_anyway(
    source: str, target: str, version: int, tmp_path: Path
) -> None:
    if source == "zookeeper" and version > RESTORED_BY_ZOOKEEPER_MAX:
        version = RESTORED_BY_ZOOKEEPER_MAX  # it cannot be brought there in any other way
    # A shard that has to be pushed so far takes its time: one of those numbers is enough.
    given = version if version == MILLION else 0
    async with paired(source, target, tmp_path, given) as pair:
        await pair.source.restore(records(Record("/n", b"old", version, 1, 1)))
        store = pair.store
        token = await token_of(store, "/n")
        assert token.native == version
        await pair.switch()
        kept = await token_of(pair.target, "/n")
        is_kept = target != "zookeeper" or version <= RESTORED_BY_ZOOKEEPER_MAX
        assert kept.native == (version if is_kept else 0)
        beside = [await pair.target.put(f"/beside/{n}", b"") for n in range(3)]
        if target == "oxia":
            assert kept.life == version, "Oxia's own number is what Pulsar takes for the version"
            assert min(stat.version.life for stat in beside) > version, "no number comes again"
        await store.put("/n", b"new", token)
        with pytest.raises(BadVersion):
            await store.put("/n", b"no", token)
        node = await store.get("/n")
        assert node is not None
        assert node.value == b"new"


@pytest.mark.goal("454.A14", part="native ids", broken_by="versions_come_back_changed")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("source", ["memory", "oxia"])
async def test_a_version_that_did_not_come_along_stays_where_it_was_until_its_node_changes(
    source: str, tmp_path: Path
) -> None:
    async with paired(source, "zookeeper", tmp_path, MILLION) as pair:
        store, version = pair.store, MILLION
        paths = ("/kept", "/changed", "/made-anew", "/parent")
        await pair.source.restore(records(*(Record(path, b"old", version, 1, 1) for path in paths)))
        await store.put("/parent/n-", b"", sequential=True)
        tokens = {path: await token_of(store, path) for path in paths}
        assert {token.native for token in tokens.values()} == {version}
        await pair.switch()
        await store.put("/changed", b"other", tokens["/changed"])
        await store.put("/changed", b"old")
        await store.delete("/made-anew", tokens["/made-anew"])
        await store.put("/made-anew", b"old", ABSENT)
        await store.put("/parent/n-", b"", sequential=True)
        await pair.followed_back("/parent/n-0000000001")
        there = {path: await token_of(pair.source, path) for path in paths}
        for path in ("/kept", "/parent"):
            assert there[path] == tokens[path], "nobody has changed it"
        for path in ("/changed", "/made-anew"):
            assert there[path].native < version
            with pytest.raises(BadVersion):
                await store.put(path, b"no", tokens[path])
        now = await store.get("/kept")
        assert now is not None
        await pair.roll_back()
        for path in ("/changed", "/made-anew"):
            with pytest.raises(BadVersion):
                await store.put(path, b"no", tokens[path])
        await store.put("/kept", b"new", now.stat.version)
        with pytest.raises(BadVersion):
            await store.put("/kept", b"no", tokens["/kept"])
        await store.put("/parent", b"new", tokens["/parent"])
