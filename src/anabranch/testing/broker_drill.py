"""Drill of several brokers: the owner of a topic is killed, or stopped, again and again under load.

    python -m anabranch.testing.broker_drill --faults 30
    python -m anabranch.testing.broker_drill --faults 8 --pause-s 40

Three brokers of ours on a real ZooKeeper and three real bookies. Others take the topic over; the
one that was hurt comes back. What the clients saw is judged by the rules of verify. The verdict is
JSON on standard output; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.client import Client
from anabranch.errors import AnabranchError
from anabranch.testing.publish_gaps import PublishGaps
from anabranch.testing.servers import Member, bookkeeper, zookeeper
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers
from anabranch.testing.stopping import run_program
from anabranch.verify.check import check_folder
from anabranch.verify.limits import STUCK_IN_WINDOW_S_MAX
from anabranch.verify.records import (
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Event,
    SubscriptionType,
)
from anabranch.verify.verdict import Status, Verdict
from anabranch.verify.workload import ClientKind, Workload, WorkloadSettings

SESSION_TIMEOUT_S: Final = 6.0
_POLL_S: Final = 0.2
_REPORTED_S: Final = 0.5
"""After so long clients have told of what they got before."""
_PROGRESS_S_MAX: Final = 120.0
_AT_ONCE_EVERY: Final = 4
"""So many kills, and after one a broker comes back before its session ended, and has its own."""
_MEMORY: Final = ("-Xmx256m",)


@dataclass(frozen=True, slots=True)
class BrokerDrillSettings:
    """What a drill does."""

    faults: int
    seed: int
    gap_s: float = 20.0
    """From one fault to the next."""
    pause_s: float = 0.0
    """How long the owner is stopped; 0: it is killed instead."""
    rate: float = 200.0
    subscriptions: tuple[SubscriptionType, ...] = tuple(SubscriptionType)
    client: ClientKind = ClientKind.PYPI
    dedup: bool = False
    """Whether the brokers deduplicate: then no take-over may store anything twice."""

    def workload(self, url: str) -> WorkloadSettings:
        """Return the load that the brokers are under."""
        run = Random(f"run/{self.seed}").randbytes(8).hex()
        return WorkloadSettings(
            url=url,
            topic=f"persistent://public/default/drill-{run}",
            run=run,
            seed=self.seed,
            subscriptions=self.subscriptions,
            rate=self.rate,
            client=self.client,
            dedup=self.dedup,
            send_timeout_s=90.0,
            idle_s=30.0,
        )


class BrokerDrill:
    """One drill on brokers that run already."""

    def __init__(self, brokers: OurBrokers, settings: BrokerDrillSettings, folder: Path) -> None:
        self._brokers = brokers
        self._settings = settings
        self._random = Random(f"faults/{settings.seed}")
        workload = settings.workload(brokers.service_url)
        self._topic = workload.topic
        self._workload = Workload(workload, folder)

    async def run(self) -> Verdict:
        """Hurt the owner as often as asked, drain, and judge.

        Raises:
            ServerFailed: if nobody takes the topic over.
            ClientFailed: if a client process failed.
        """
        workload, settings = self._workload, self._settings
        loop = asyncio.get_running_loop()
        try:
            await workload.start()
            for number in range(1, settings.faults + 1):
                await self._wait_for_progress(f"before fault {number}")
                began_s = loop.time()
                await asyncio.sleep(self._random.uniform(0, 2.0))
                await self._hurt(number)
                await asyncio.sleep(max(0.0, began_s + settings.gap_s - loop.time()))
            await self._wait_for_progress("after the last fault")
            await workload.stop_sending()
            await workload.drain()
        finally:
            await workload.close()
        workload.raise_failure()
        gaps = PublishGaps()
        verdict = check_folder(
            workload.folder,
            also=lambda record, news, judge: gaps.see(record),
            # A client does not know a broker that stands still from one that is slow: until its
            # keep-alive says so, it waits for as long as the broker does.
            wait_in_window_s=STUCK_IN_WINDOW_S_MAX + settings.pause_s,
        )
        verdict.figures.update(gaps.figures())
        return verdict

    async def _hurt(self, number: int) -> None:
        owner = await self._owner()
        kind = "pause" if self._settings.pause_s else "kill"
        self._workload.note(Event(WINDOW_OPENED, f"{kind} {number} of {owner.name}"))
        self._workload.note(Event(SERVER_KILLED, f"{kind} {number} of {owner.name}"))
        if self._settings.pause_s:
            until_s = asyncio.get_running_loop().time() + self._settings.pause_s
            owner.pause()
            await self._open_elsewhere(owner)
            await asyncio.sleep(until_s - asyncio.get_running_loop().time())
            owner.resume()
        else:
            owner.kill()
            if number % _AT_ONCE_EVERY:
                await self._wait_for_another(owner)
            # By the main thread: the kernel ends servers with the thread that started them.
            owner.launch()
        await asyncio.sleep(_REPORTED_S)
        await self._wait_for_progress(f"after {kind} {number}")
        self._workload.note(Event(WINDOW_CLOSED, f"{kind} {number} of {owner.name}"))
        acknowledged = self._workload.progress.acknowledged
        print(
            f"{kind} {number} of {self._settings.faults}: {owner.name}, "
            f"{acknowledged:,} acknowledged so far",
            file=sys.stderr,
            flush=True,
        )

    async def _owner(self, other_than: Member | None = None) -> Member:
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            owner = await asyncio.to_thread(self._brokers.owner, self._topic)
            if owner is not None and owner.running and owner is not other_than:
                return owner
            await asyncio.sleep(_POLL_S)
        raise ServerFailed(f"nobody owned {self._topic} for {_PROGRESS_S_MAX:g} s")

    async def _wait_for_another(self, hurt: Member) -> None:
        """Wait until another broker has the topic, and producers have heard from it."""
        await self._owner(other_than=hurt)
        await asyncio.sleep(_REPORTED_S)
        await self._wait_for_progress(f"after {hurt.name} was hurt")

    async def _open_elsewhere(self, paused: Member) -> None:
        """Use the topic at another broker: clients of the one that stands still ask nobody."""
        others = [
            f"127.0.0.1:{port}"
            for member, port in zip(self._brokers.members, self._brokers.ports, strict=True)
            if member is not paused
        ]
        try:
            async with asyncio.timeout(self._settings.pause_s):
                await self._owner(other_than=paused)
                async with Client("pulsar://" + ",".join(others)) as client:
                    await client.reader(self._topic)
        except (TimeoutError, AnabranchError) as error:
            raise ServerFailed(f"nobody took over while {paused.name} stood still") from error

    async def _wait_for_progress(self, when: str) -> None:
        """Wait until every producer has a receipt it did not have before."""
        before = self._workload.progress.acknowledged_of
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            self._workload.raise_failure()
            now = self._workload.progress.acknowledged_of
            if all(new > old for new, old in zip(now, before, strict=True)):
                return
            await asyncio.sleep(_POLL_S)
        raise ServerFailed(f"a producer had no receipt for {_PROGRESS_S_MAX:g} s, {when}")


def drill(settings: BrokerDrillSettings, folder: Path, *, session_timeout_s: float) -> Verdict:
    """Start everything, run one drill, and end everything.

    Raises:
        AnabranchError: if there is no verdict.
    """
    with ExitStack() as held:
        metadata = held.enter_context(zookeeper(memory=_MEMORY))
        init_cluster(metadata.url)
        held.enter_context(bookkeeper(metadata.url, 3))
        options = ["--metadata-session-timeout-s", f"{session_timeout_s:g}"]
        options += ["--deduplication"] if settings.dedup else []
        brokers = held.enter_context(
            our_brokers(metadata.url, 3, options=options, folder=folder / "brokers")
        )
        return asyncio.run(BrokerDrill(brokers, settings, folder / "history").run())


def verdict_of(verdict: Verdict, settings: BrokerDrillSettings) -> dict[str, Any]:
    """The verdict as it is printed."""
    return {**verdict.as_json(), "faults": settings.faults, "seed": settings.seed}


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.broker_drill")
    add = parser.add_argument
    add("--faults", type=int, default=3, help="how often the owner is hurt (default: %(default)s)")
    add("--gap-s", type=float, default=20.0, help="from one to the next (default: %(default)s)")
    add("--pause-s", type=float, default=0.0, help="stop it for so long instead of killing it")
    add("--session-timeout-s", type=float, default=SESSION_TIMEOUT_S, help="of the brokers")
    add("--rate", type=float, default=200.0, help="messages per second (default: %(default)s)")
    add("--client", choices=[kind.value for kind in ClientKind], default="pypi")
    add("--dedup", action="store_true", help="the brokers deduplicate: nothing is stored twice")
    add("--seed", type=int, default=None, help="repeats the moments of the faults and the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.faults < 1:
        parser.error("at least one fault is needed")
    settings = BrokerDrillSettings(
        faults=asked.faults,
        seed=SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed,
        gap_s=asked.gap_s,
        pause_s=asked.pause_s,
        rate=asked.rate,
        client=ClientKind(asked.client),
        dedup=asked.dedup,
    )
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-brokers-"))
    print(f"seed {settings.seed}, histories and logs in {folder}", file=sys.stderr)
    try:
        found = drill(settings, folder, session_timeout_s=asked.session_timeout_s)
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict_of(found, settings)))
    return {Status.CLEAN: 0, Status.VIOLATED: 1}.get(found.status, 2)


if __name__ == "__main__":
    run_program(main)
