"""The metadata store of real brokers is replaced under load, by the commands of the guide.

To Oxia, back to ZooKeeper, to Oxia for good; then ZooKeeper is stopped and every broker restarted
with the configuration it had. Stock clients publish and consume all the time, and admin requests
change metadata; what was acknowledged is there in the end.
"""

import asyncio
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.client.admin import AdminClient
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.admin_load import AdminLoad
from anabranch.testing.made_histories import broken_rules
from anabranch.testing.planted import child_command
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster
from anabranch.verify.check import check_folder
from anabranch.verify.records import SubscriptionType
from anabranch.verify.workload import Workload, WorkloadSettings

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "replace-the-metadata-store.md"
SLOWNESS = {"C14"}
"""How long a client waits depends on what else the machine does."""
REST_S = 3.0
SOCKETS = Path("/proc/net/tcp")
ESTABLISHED = "01"
LOST = re.compile(r"bundle_(?:lost|released)|unloaded|topic_failed|task_failed")
WATCH_S_MAX = 120.0


class Story:
    """A cluster under load, and the guide's commands for it."""

    def __init__(self, cluster: ReplaceableCluster, folder: Path) -> None:
        self.cluster = cluster
        self.load = AdminLoad(cluster.web_urls)
        self.workload = Workload(
            WorkloadSettings(
                url=cluster.brokers.service_url,
                topic="persistent://public/default/replaced",
                run="51ab" * 4,
                seed=51,
                producers=2,
                subscriptions=tuple(SubscriptionType),
                rate=50.0,
                send_timeout_s=90.0,
                idle_s=30.0,
            ),
            folder,
        )
        text = GUIDE.read_text().replace("oxia://127.0.0.1:6648/default", cluster.target.url)
        text = text.replace("http://127.0.0.1:8080", cluster.web_urls[0])
        blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.commands = [shlex.split(line) for block in blocks for line in block.splitlines()]

    async def ask(self, words: list[str]) -> str:
        """Run a command of the guide; it ends well."""
        command = child_command("anabranch", *words[1:])
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=WATCH_S_MAX
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return str(done.stdout)

    async def status(self) -> dict[str, Any]:
        async with AdminClient(self.cluster.web_urls[-1]) as admin:
            return await admin.metadata_migration.status()

    async def follow_the_guide(self) -> None:
        """Run its commands one after the other; somebody writes after each phase at rest."""
        rested: list[str] = []
        for words in self.commands:
            assert words[0] == "anabranch"
            if words[1] == "broker":
                assert "--metadata-migration-targets" in words
                continue
            await self.ask(words)
            if words[3] == "watch":
                found = await self.status()
                rested.append(found["phase"])
                print(
                    *(f"{each['at_ms']} {each['phase']} {each['why']}" for each in found["trail"]),
                    sep="\n",
                )
                print("\n".join(found["lines"]))
                assert not found["error"], found["error"]
                before = self.load.acknowledged
                await asyncio.sleep(REST_S)
                assert self.load.acknowledged > before, f"nobody can write at {rested[-1]}"
        assert rested == ["switched", "rolled back", "switched", "finalized"]

    async def play(self) -> None:
        """All of it, and what must be so in the end."""
        try:
            await self.workload.start()
            self.load.begin()
            await asyncio.sleep(REST_S)
            attached, told = self.attached(), self.told()
            assert attached, "nobody is connected"
            await self.follow_the_guide()
            assert attached <= self.attached(), "a client was cut off"
            for before, now in zip(told, self.told(), strict=True):
                assert not LOST.findall(now[len(before) :]), "a broker took it for a lost session"
            while_replaced = list(self.load.retried)
            await self.leave_the_source()
            await self.restart_everything()
            await self.load.stop()
            await self.workload.stop_sending()
            await self.workload.drain()
        finally:
            await self.load.stop()
            await self.workload.close()
        self.workload.raise_failure()
        assert while_replaced == [], "no request has to be sent again"
        for web_url in self.cluster.web_urls:
            assert await self.load.check(web_url) == []
        print(f"{self.load.acknowledged} metadata writes, the longest {self.load.longest_s:.1f} s")

    def attached(self) -> set[str]:
        """Every connection of a client to a broker: both of its ends, as the system shows them."""
        ports = {f":{port:04X}" for port in self.cluster.brokers.ports}
        lines = [line.split() for line in SOCKETS.read_text().splitlines()[1:]]
        return {
            f"{local} {remote}"
            for _, local, remote, state, *_ in lines
            if local[-5:] in ports and state == ESTABLISHED
        }

    def told(self) -> list[str]:
        """What each broker has logged so far."""
        return [member.log.read_text() for member in self.cluster.brokers.members]

    async def leave_the_source(self) -> None:
        """Every broker lets go of it within a moment; then it is stopped."""
        for member in self.cluster.brokers.members:
            async with asyncio.timeout(60):
                while "store_left_for_good" not in member.log.read_text():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        self.cluster.source.members[0].stop()
        before = self.load.acknowledged
        await asyncio.sleep(REST_S)
        assert self.load.acknowledged > before, "nobody can write without the old store"

    async def restart_everything(self) -> None:
        """With the configuration from before, which names a store that is gone."""
        for member in self.cluster.brokers.members:
            member.stop()
            member.start()
            assert "metadata_store_is_gone" in member.log.read_text()
        before = self.load.acknowledged
        async with asyncio.timeout(90):
            while self.load.acknowledged < before + 5:  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def written_to(url: str) -> set[str]:
    store = await open_store(url, real_runtime())
    try:
        return {record.path async for record in store.export("/admin/policies")}
    finally:
        await store.close()


@pytest.mark.goal("454.A31", part="processes")
@pytest.mark.goal("454.A34", part="clients")
def test_the_store_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with replaceable_cluster(tmp_path / "servers") as cluster:
        story = Story(cluster, tmp_path / "history")
        asyncio.run(story.play())
        in_use = asyncio.run(written_to(cluster.target.url))
        cluster.source.members[0].start()
        left = asyncio.run(written_to(cluster.source.url))
    verdict = check_folder(tmp_path / "history")
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    assert story.load.acknowledged > 100
    assert len(in_use) > len(left), "what was made after the end is in the new store alone"
    assert left <= in_use
