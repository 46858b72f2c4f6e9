"""Where drills replace the metadata store of running brokers: a load, an operator, and a judge.

Stock clients publish and consume with every type of subscription, admin requests change metadata
all the time, and somebody asks for the operation. A request whose answer was lost is asked again.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from anabranch.client.admin import AdminClient
from anabranch.client.admin.refusals import AdminConflict
from anabranch.errors import AnabranchError
from anabranch.testing.admin_load import CAUSES, AdminLoad
from anabranch.testing.publish_gaps import PublishGaps
from anabranch.testing.servers import Member
from anabranch.testing.servers.bookkeeper import point
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster
from anabranch.verify.check import check_folder
from anabranch.verify.records import (
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Event,
    SubscriptionType,
)
from anabranch.verify.verdict import Status, Verdict
from anabranch.verify.workload import Workload, WorkloadSettings

Request = Callable[[AdminClient], Awaitable[dict[str, Any]]]
OVER: Final = ("rolled back", "aborted", "failed")
"""Ends of an attempt after which the old store is in use."""
PHASE_S_MAX: Final = 180.0
_LOOK_S: Final = 0.02
_SEND_S_MAX: Final = 120.0


class ReplacementStage:
    """A cluster that runs already, and what is done to it."""

    def __init__(self, cluster: ReplaceableCluster, folder: Path, *, seed: int) -> None:
        self.cluster = cluster
        self.load = AdminLoad(cluster.web_urls)
        self.faults: list[tuple[float, float]] = []
        """When somebody was hurt or away, by the monotonic clock."""
        self._fault_s: float | None = None
        run = Random(f"run/{seed}").randbytes(8).hex()
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
        self.workload = Workload(settings, folder)

    async def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story under load, and let everything that was sent arrive."""
        try:
            await self.workload.start()
            self.load.begin()
            await story()
            await self.load.stop()
            await self.workload.stop_sending()
            await self.workload.drain()
        finally:
            await self.load.stop()
            await self.workload.close()
        self.workload.raise_failure()
        wrong = [await self.load.check(web_url) for web_url in self.cluster.web_urls]
        self.load.wrong = sorted({each for some in wrong for each in some})

    def judge(self) -> Verdict:
        """Judge what clients saw, with the gaps in publishing at each fault or operation."""
        gaps = PublishGaps()
        verdict = check_folder(
            self.workload.folder,
            also=lambda record, news, judge: gaps.see(record),
            wait_in_window_s=_SEND_S_MAX,
        )
        verdict.figures.update(gaps.figures())
        return verdict

    def open_window(self, words: str) -> None:
        """From here on clients may notice something."""
        self.workload.note(Event(WINDOW_OPENED, words))

    def close_window(self, words: str) -> None:
        """From here on they may not."""
        self.workload.note(Event(WINDOW_CLOSED, words))

    def fault(self, since_s: float | None = None) -> None:
        """From here on, or since a moment, a request may come to nothing."""
        if self._fault_s is None:
            self._fault_s = time.monotonic() if since_s is None else since_s

    def fault_over(self) -> None:
        """From here on none may."""
        if self._fault_s is not None:
            self.faults.append((self._fault_s, time.monotonic()))
            self._fault_s = None

    def noticed(self) -> list[str]:
        """What clients were not to see: a stock client would not have tried again by itself."""
        again = [each for each in self.load.retried if not each.falls_in(self.faults)]
        found = [*self.load.wrong, *(f"sent again with nobody hurt: {each}" for each in again)]
        if unsure := self.workload.progress.unknown:
            found.append(f"{unsure} sends did not end well")
        return found

    # --- the operator -------------------------------------------------------------------------

    async def start(self, **more: float) -> int:
        """Begin an attempt, and return its number; what is in the way for a moment is waited for.

        `more` are parameters of it.

        Raises:
            ServerFailed: if it is refused for too long.
        """
        before = (await self.status()).get("number", 0)
        parameters = {"target": self.cluster.target.url, **more}
        last = ""
        for _ in range(int(PHASE_S_MAX)):
            try:
                async with AdminClient(self.cluster.web_urls[0], timeout_s=30.0) as admin:
                    await admin.metadata_migration.start(parameters)
            except AnabranchError as error:
                last = str(error)
            # If the answer was lost, the request was not.
            if (now := (await self.status()).get("number", 0)) > before:
                return int(now)
            await asyncio.sleep(1.0)
        raise ServerFailed(f"not started for {PHASE_S_MAX:g} s: {last}")

    async def ask(self, verb: str) -> None:
        """Ask once more if the answer was lost; what is refused then was done."""
        await self._asked(lambda admin: admin.metadata_migration.ask(verb))

    async def status(self) -> dict[str, Any]:
        """What the first broker says that knows of an attempt.

        One that was restarted after the end began with the new store, where none was ever made.
        """
        return await self._asked(
            lambda admin: admin.metadata_migration.status(),
            is_answer=lambda found: found["phase"] is not None,
        )

    async def _asked(
        self, request: Request, is_answer: Callable[[dict[str, Any]], bool] = lambda found: True
    ) -> dict[str, Any]:
        """What the first broker says with an answer; if none has one, the last that spoke."""
        loop = asyncio.get_running_loop()
        until_s, last = loop.time() + PHASE_S_MAX, ""
        found: dict[str, Any] = {}
        while loop.time() < until_s:
            for web_url in self.cluster.web_urls:
                try:
                    async with AdminClient(web_url, timeout_s=10.0) as admin:
                        if is_answer(found := await request(admin)):
                            return found
                except AdminConflict as error:
                    return {"refused": error.reason}
                except AnabranchError as error:
                    last = str(error)
            if found:
                return found
            await asyncio.sleep(0.5)
        raise ServerFailed(f"asked for {PHASE_S_MAX:g} s: {last}")

    async def until(self, *phases: str) -> dict[str, Any]:
        """Wait until one of some phases is announced.

        Raises:
            ServerFailed: if none is for too long.
        """
        loop = asyncio.get_running_loop()
        until_s, found = loop.time() + PHASE_S_MAX, {"phase": "unknown"}
        while loop.time() < until_s:
            found = await self.status()
            if found["phase"] in phases:
                return found
            await asyncio.sleep(_LOOK_S)
        raise ServerFailed(
            f"{found['phase']} for {PHASE_S_MAX:g} s, not {phases}: {json.dumps(found)[:1500]}"
        )

    async def roll_back(self) -> dict[str, Any]:
        """A rollback that fails leads to `switched` again, and is asked for again.

        Raises:
            ServerFailed: if none comes to its end.
        """
        for _ in range(5):
            await self.ask("rollback")
            if (found := await self.until("switched", *OVER))["phase"] in OVER:
                return found
        raise ServerFailed("no rollback came to its end")

    async def leave_source(self, *, restarted: Member | None = None) -> None:
        """Stop the old store once every broker has let go of it, but one that was restarted."""
        for member in self.cluster.brokers.members:
            if member is not restarted:
                await self._log_of(member, "store_left_for_good")
        await asyncio.to_thread(self.cluster.source.members[0].stop)
        await self.progress("without the old store")

    async def restart(self, member: Member, *, before: Callable[[], None] | None = None) -> None:
        """End a server cleanly, and start it again; `before` is done in between.

        Clients go on meanwhile, so this loop may not stand still. It starts the server itself,
        since the kernel ends servers with the thread that started them.
        """
        self.fault()
        await asyncio.to_thread(member.stop)
        if before is not None:
            before()
        member.launch()
        await asyncio.to_thread(member.wait_ready)
        await self.progress(f"after a restart of {member.name}")
        self.fault_over()

    async def restart_brokers(self) -> None:
        """One after the other, with the configuration from before."""
        for member in self.cluster.brokers.members:
            await self.restart(member)

    async def move_bookies(self) -> None:
        """Restart bookies that were led with the address of the new store, one after the other."""
        for member in self.cluster.bookies.members:
            await self.restart(member, before=partial(point, member, self.cluster.target.url))

    async def _log_of(self, member: Member, words: str) -> None:
        for _ in range(int(PHASE_S_MAX)):
            if words in member.log.read_text():
                return
            await asyncio.sleep(1.0)
        raise ServerFailed(f"{member.name} did not say {words}")

    async def progress(self, when: str) -> None:
        """Wait until every producer has a new receipt, and some request was answered.

        Raises:
            ServerFailed: if that takes too long.
        """
        before, asked = self.workload.progress.acknowledged_of, self.load.acknowledged
        for _ in range(int(PHASE_S_MAX)):
            now = self.workload.progress.acknowledged_of
            goes_on = all(new > old for new, old in zip(now, before, strict=True))
            if goes_on and self.load.acknowledged > asked:
                return
            await asyncio.sleep(1.0)
        raise ServerFailed(f"nothing was acknowledged for {PHASE_S_MAX:g} s, {when}")


def figures_of_loads(loads: Sequence[AdminLoad]) -> dict[str, Any]:
    """What became of admin requests, as a verdict has it."""
    causes = [load.causes() for load in loads]
    wrong = [each for load in loads for each in load.wrong]
    return {
        "metadata_writes": sum(load.acknowledged for load in loads),
        "metadata_write_longest_s": round(max(load.longest_s for load in loads), 3),
        "metadata_write_longest_whole_s": round(max(load.longest_whole_s for load in loads), 3),
        "metadata_write_longest": max(loads, key=lambda load: load.longest_s).longest,
        "metadata_writes_sent_again": sum(len(load.retried) for load in loads),
        **{f"sent_again_{cause}": sum(each[cause] for each in causes) for cause in CAUSES},
        "metadata_writes_wrong": len(wrong),
        "wrong": wrong,
    }


def exit_code(verdicts: list[Verdict], wrong: list[str]) -> int:
    """0 clean, 1 violated, 2 no verdict."""
    found = {verdict.status for verdict in verdicts}
    if wrong or Status.VIOLATED in found:
        return 1
    return 0 if found == {Status.CLEAN} else 2
