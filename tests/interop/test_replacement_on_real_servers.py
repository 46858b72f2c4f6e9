"""One place of a real ZooKeeper is replaced by another while sessions end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from anabranch.metadata.announced import participants_path
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import zookeeper
from anabranch.testing.staged_replacement import BEFORE_SWITCH, LONG_S, Stage, let_others_run
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
NODES = 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.url


@asynccontextmanager
async def on_zookeeper(url: str, *names: str) -> AsyncIterator[Stage]:
    """Some processes on a store, by handles of which each is a session of its own."""
    stage = Stage(real_runtime(), TABLE.holding_for(LONG_S))
    try:
        for name in names:
            await stage.join(name, url, stage.shelf.open)
        for number in range(NODES):
            await stage.anybody.store.put(f"/filled/{number:02d}", b"%d" % number)
        yield stage
    finally:
        await stage.close()


async def end(store: MetadataStore) -> None:
    assert isinstance(store, ZooKeeperStore)
    await end_session(store)


async def kill(stage: Stage, name: str) -> None:
    """Have a process do nothing any more; its sessions end, and it did not end them."""
    member = stage.members.pop(name)
    await member.replaceable._at_source.close()
    await member.tasks.close()
    for store in (member.store.side, member.store.route.store):
        if isinstance(store, ZooKeeperStore):
            await end(store)
    await member.close()


async def check_whole(stage: Stage, name: str) -> None:
    await stage.all_on(name)
    for member in stage.members.values():
        await member.store.put("/after", b"")
        assert len(await member.store.children("/filled")) == NODES


@pytest.mark.goal("454.A4", part="real")
async def test_a_participant_whose_session_ends_is_known_again(url: str) -> None:
    source, target = f"{url}/known", f"{url}/known-next"
    async with on_zookeeper(source, "ash", "birch") as stage:
        await stage.reach("copying", target)
        before = (await stage.operation.status()).as_json()["participants"]
        assert {each["role"] for each in before} == {"broker"}
        raw = await stage.shelf.open(source)
        folder = participants_path("metadata")
        driver = await stage.driver()
        (other,) = set(stage.members) - {driver}
        (path,) = [
            f"{folder}/{each['id']}" for each in before if each["id"].startswith(f"{other}-")
        ]
        node = await raw.get(path)
        assert node is not None
        await end(stage.members[other].store.side)
        async with asyncio.timeout(60.0):
            while True:
                again = await raw.get(path)
                if again is not None and again.stat.revision > node.stat.revision:
                    break
                await asyncio.sleep(0.05)
        await stage.until_reported("copying")
        after = (await stage.operation.status()).as_json()["participants"]
        for name in ("id", "role", "host", "version"):
            assert [each[name] for each in after] == [each[name] for each in before]
        stage.go_on()
        await stage.until("switched")
        await check_whole(stage, "target")
        await raw.close()


@pytest.mark.goal("454.A26", part="real")
@pytest.mark.goal("trap.U2", part="real")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_a_driver_whose_sessions_end_is_replaced(url: str, phase: str) -> None:
    source, target = f"{url}/{phase}", f"{url}/{phase}-next"
    async with on_zookeeper(source, "ash", "birch") as stage:
        await stage.reach(phase, target)
        dead = await stage.driver()
        (lives,) = [member for name, member in stage.members.items() if name != dead]
        waiting = asyncio.ensure_future(lives.store.put("/held", b""))
        await let_others_run()
        await kill(stage, dead)
        stage.go_on()
        given_up = TABLE[phase].new_driver_fails_it
        state = await stage.until("failed" if given_up else "switched")
        assert not state.driver.startswith(f"{dead}-")
        await waiting
        await check_whole(stage, "source" if given_up else "target")
        assert await lives.store.exists("/held")


@pytest.mark.goal("454.A30", part="real")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_an_abort_leads_back(url: str, phase: str) -> None:
    async with on_zookeeper(f"{url}/abort-{phase}", "ash", "birch") as stage:
        await stage.reach(phase, f"{url}/abort-{phase}-next")
        waiting = asyncio.ensure_future(stage.anybody.store.put("/held", b""))
        await stage.ask(Verb.ABORT)
        await stage.until("aborted")
        await waiting
        await check_whole(stage, "source")
        assert await stage.anybody.store.exists("/held")
