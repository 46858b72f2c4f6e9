"""Who asks a server for a plan, on a real ZooKeeper: nothing is made there, not even the chroot."""

from contextlib import AsyncExitStack

import pytest

from anabranch.metadata.announced import Report
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.metadata_stores import TakesPart, open_replaceable
from anabranch.server.settings import Settings
from anabranch.testing.servers import zookeeper
from anabranch.testing.staged_replacement import failed

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]


@pytest.mark.goal("rel.A1", part="chroot")
async def test_a_plan_makes_no_chroot() -> None:
    with zookeeper() as server:
        async with AsyncExitStack() as held:
            runtime, target = real_runtime(), f"{server.url}/next"
            settings = Settings(metadata_migration_targets=target)
            tasks = Tasks(failed)
            part = TakesPart(Report("m", "broker", "localhost", "test"), tasks)
            found = await open_replaceable(runtime, f"{server.url}/now", settings, part)
            held.push_async_callback(found.close)
            held.push_async_callback(tasks.close)
            top = await open_store(server.url, runtime)
            held.push_async_callback(top.close)
            plan = await found.steps.plan({"target": target})
            assert plan.blockers == []
            assert "next" not in await top.children("/")
            assert "now" in await top.children("/")
