"""Drill of replacing the metadata store under brokers: kill -9 of who takes part, phase by phase.

    python -m anabranch.testing.replace_metadata_drill --kills 9

Two brokers of ours on a real ZooKeeper, with a bookie; an empty Oxia as target; stock clients and
admin requests all the time. Attempt after attempt is begun and struck in one phase: the broker that
drives, another broker, or the target is killed and comes back. Whatever came of it, the next one
follows; the last is finalized, ZooKeeper is stopped, and all brokers are restarted with the old
configuration. Messages are judged by the rules of verify, metadata by what was acknowledged. The
verdict is JSON on standard output; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.client.admin import AdminClient
from anabranch.client.admin.refusals import AdminConflict
from anabranch.errors import AnabranchError
from anabranch.testing.admin_load import AdminLoad
from anabranch.testing.publish_gaps import PublishGaps
from anabranch.testing.servers import Member
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster
from anabranch.testing.stopping import run_program
from anabranch.verify.check import check_folder
from anabranch.verify.records import (
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Event,
    SubscriptionType,
)
from anabranch.verify.verdict import Status, Verdict
from anabranch.verify.workload import Workload, WorkloadSettings

Request = Callable[[AdminClient], Awaitable[dict[str, Any]]]
DRIVER, BROKER, TARGET = "driver", "broker", "target"
BLOWS: Final = (
    ("copying", DRIVER),
    ("freezing", TARGET),
    ("switched", BROKER),
    ("refreezing", DRIVER),
    ("verifying", TARGET),
    ("switching", BROKER),
    ("preparing", DRIVER),
    ("rejoining", BROKER),
    ("reverting", BROKER),
    ("freezing", DRIVER),
    ("copying", TARGET),
    ("switched", DRIVER),
    ("tailing", BROKER),
    ("switching", DRIVER),
    ("refreezing", TARGET),
    ("preparing", BROKER),
    ("fencing", DRIVER),
    ("tailing", TARGET),
    ("verifying", DRIVER),
    ("rejoining", DRIVER),
    ("copying", BROKER),
    ("switched", TARGET),
    ("freezing", BROKER),
    ("tailing", DRIVER),
    ("switching", TARGET),
    ("verifying", BROKER),
    ("returning", DRIVER),
    ("preparing", TARGET),
    ("fencing", BROKER),
    ("rejoining", TARGET),
    ("reverting", DRIVER),
    ("returning", BROKER),
    ("fencing", TARGET),
    ("refencing", DRIVER),
    ("refreezing", BROKER),
    ("returning", TARGET),
)
"""Where, and who; the first ones are the most different."""
_BACK: Final = ("refreezing", "returning", "refencing", "reverting")
_OVER: Final = ("rolled back", "aborted", "failed")
_LOOK_S: Final = 0.02
_CALM_S: Final = 2.0
_PHASE_S_MAX: Final = 180.0
_SEND_S_MAX: Final = 120.0


class ReplaceMetadataDrill:
    """One drill on a cluster that runs already."""

    def __init__(self, cluster: ReplaceableCluster, folder: Path, *, kills: int, seed: int) -> None:
        self._cluster = cluster
        self._kills = kills
        self._random = Random(seed)
        self.load = AdminLoad(cluster.web_urls)
        self.ends: dict[str, int] = {}
        """How often each phase was come to a rest in after a blow."""
        self.struck: dict[str, int] = {}
        """How often each phase was hit; a short one may be over before its blow falls."""
        run = self._random.randbytes(8).hex()
        settings = WorkloadSettings(
            url=cluster.brokers.service_url,
            topic=f"persistent://public/default/drill-{run}",
            run=run,
            seed=seed,
            producers=2,
            subscriptions=tuple(SubscriptionType),
            rate=50.0,
            send_timeout_s=_SEND_S_MAX,
            idle_s=30.0,
        )
        self._workload = Workload(settings, folder)

    async def run(self) -> Verdict:
        """Strike as often as asked, end for good, drain, and judge.

        Raises:
            ServerFailed: if an attempt does not come to a rest.
        """
        try:
            await self._workload.start()
            self.load.begin()
            for number, (phase, victim) in enumerate(islice(cycle(BLOWS), self._kills), start=1):
                await self._blow(number, phase, victim)
            await self._end_for_good()
            await self.load.stop()
            await self._workload.stop_sending()
            await self._workload.drain()
        finally:
            await self.load.stop()
            await self._workload.close()
        self._workload.raise_failure()
        wrong = [await self.load.check(web_url) for web_url in self._cluster.web_urls]
        self.load.wrong = sorted({each for some in wrong for each in some})
        gaps = PublishGaps()
        verdict = check_folder(
            self._workload.folder,
            also=lambda record, news, judge: gaps.see(record),
            wait_in_window_s=_SEND_S_MAX,
        )
        verdict.figures.update(gaps.figures())
        return verdict

    async def _blow(self, number: int, phase: str, victim: str) -> None:
        await asyncio.sleep(_CALM_S)
        await self._start()
        if phase in _BACK:
            await self._until("switched")
            await self._ask("rollback")
        found = await self._until(phase, "switched", *_OVER)
        hit = self._member(found, victim)
        name = f"kill {number} of {self._kills}: {victim} ({hit.name}), {phase}"
        self._workload.note(Event(WINDOW_OPENED, name))
        self._workload.note(Event(SERVER_KILLED, name))
        hit.kill()
        self.struck[found["phase"]] = self.struck.get(found["phase"], 0) + 1
        await asyncio.sleep(self._random.uniform(0, _CALM_S))
        hit.launch()
        await asyncio.to_thread(hit.wait_ready)
        rest = await self._until("switched", *_OVER)
        self.ends[rest["phase"]] = self.ends.get(rest["phase"], 0) + 1
        if rest["phase"] == "switched":
            await self._roll_back()
        await self._progress(name)
        self._workload.note(Event(WINDOW_CLOSED, name))
        print(
            f"{name}; hit in {found['phase']}, came to {rest['phase']}: {rest.get('error') or '-'}",
            file=sys.stderr,
            flush=True,
        )

    async def _roll_back(self) -> None:
        """A rollback that fails leads to `switched` again, and is asked for again."""
        for _ in range(5):
            await self._ask("rollback")
            if (await self._until("switched", *_OVER))["phase"] in _OVER:
                return
        raise ServerFailed("no rollback came to its end")

    async def _end_for_good(self) -> None:
        await self._start()
        await self._until("switched")
        await self._ask("finalize")
        await self._until("finalized")
        for member in self._cluster.brokers.members:
            await self._log_of(member, "store_left_for_good")
        self._cluster.source.members[0].stop()
        for member in self._cluster.brokers.members:
            member.stop()
            member.start()
        await self._progress("after the restart")

    async def _log_of(self, member: Member, words: str) -> None:
        for _ in range(int(_PHASE_S_MAX)):
            if words in member.log.read_text():
                return
            await asyncio.sleep(1.0)
        raise ServerFailed(f"{member.name} did not say {words}")

    def _member(self, status: dict[str, Any], victim: str) -> Member:
        brokers = self._cluster.brokers
        if victim == TARGET:
            return self._cluster.target.server
        ports = [str(port) for port in brokers.web_ports]
        drives = [port in (status.get("driver") or "") for port in ports]
        wanted = victim == DRIVER
        found = [m for m, is_it in zip(brokers.members, drives, strict=True) if is_it is wanted]
        return self._random.choice(found or list(brokers.members))

    async def _start(self) -> None:
        """Begin an attempt; what is in the way for a moment is waited for."""
        before = (await self._status()).get("number", 0)
        parameters = {"target": self._cluster.target.url}
        last = ""
        for _ in range(int(_PHASE_S_MAX)):
            try:
                async with AdminClient(self._cluster.web_urls[0], timeout_s=30.0) as admin:
                    await admin.metadata_migration.start(parameters)
                return
            except AnabranchError as error:
                last = str(error)
            if (await self._status()).get("number", 0) > before:
                return  # the answer was lost, not the request
            await asyncio.sleep(1.0)
        raise ServerFailed(f"not started for {_PHASE_S_MAX:g} s: {last}")

    async def _ask(self, verb: str) -> None:
        """Ask once more if the answer was lost; what is refused then was done."""
        await self._asked(lambda admin: admin.metadata_migration.ask(verb))

    async def _status(self) -> dict[str, Any]:
        return await self._asked(lambda admin: admin.metadata_migration.status())

    async def _asked(self, request: Request) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until_s, last = loop.time() + _PHASE_S_MAX, ""
        while loop.time() < until_s:
            for web_url in self._cluster.web_urls:
                try:
                    async with AdminClient(web_url, timeout_s=10.0) as admin:
                        return await request(admin)
                except AdminConflict as error:
                    return {"refused": error.reason}
                except AnabranchError as error:
                    last = str(error)
            await asyncio.sleep(0.5)
        raise ServerFailed(f"asked for {_PHASE_S_MAX:g} s: {last}")

    async def _until(self, *phases: str) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until_s, found = loop.time() + _PHASE_S_MAX, {"phase": "unknown"}
        while loop.time() < until_s:
            found = await self._status()
            if found["phase"] in phases:
                return found
            await asyncio.sleep(_LOOK_S)
        raise ServerFailed(
            f"{found['phase']} for {_PHASE_S_MAX:g} s, not {phases}: {json.dumps(found)[:1500]}"
        )

    async def _progress(self, when: str) -> None:
        """Wait until every producer has a new receipt, and some request was answered."""
        before, asked = self._workload.progress.acknowledged_of, self.load.acknowledged
        for _ in range(int(_PHASE_S_MAX)):
            now = self._workload.progress.acknowledged_of
            goes_on = all(new > old for new, old in zip(now, before, strict=True))
            if goes_on and self.load.acknowledged > asked:
                return
            await asyncio.sleep(1.0)
        raise ServerFailed(f"nothing was acknowledged for {_PHASE_S_MAX:g} s, {when}")


def verdict_of(drill: ReplaceMetadataDrill, verdict: Verdict, kills: int, seed: int) -> Any:
    """The verdict as it is printed."""
    return {
        **verdict.as_json(),
        "kills": kills,
        "seed": seed,
        "metadata_writes": drill.load.acknowledged,
        "metadata_writes_sent_again": len(drill.load.retried),
        "metadata_writes_wrong": len(drill.load.wrong),
        "wrong": drill.load.wrong,
        "ends": drill.ends,
        "struck": drill.struck,
    }


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.replace_metadata_drill")
    add = parser.add_argument
    add("--kills", type=int, default=3, help="how often (default: %(default)s)")
    add("--seed", type=int, default=None, help="repeats the moments of the kills and the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.kills < 1:
        parser.error("at least one kill is needed")
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-replaced-"))
    print(f"seed {seed}, histories and logs in {folder}", file=sys.stderr)
    try:
        with replaceable_cluster(folder / "servers") as cluster:
            drill = ReplaceMetadataDrill(cluster, folder / "history", kills=asked.kills, seed=seed)
            found = asyncio.run(drill.run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict_of(drill, found, asked.kills, seed)))
    if drill.load.wrong:
        return 1
    return {Status.CLEAN: 0, Status.VIOLATED: 1}.get(found.status, 2)


if __name__ == "__main__":
    run_program(main)
