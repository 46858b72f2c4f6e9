"""Drill of several brokers: the owner of a topic is hurt again and again under load.

    python -m anabranch.testing.broker_drill --faults 30
    python -m anabranch.testing.broker_drill --faults 8 --pause-s 40
    python -m anabranch.testing.broker_drill --faults 12 --cut-s 20 --metadata oxia

Three brokers of ours on a real ZooKeeper or Oxia and three real bookies. The owner is killed, or
stopped, or cut off from its stores. Others take the topic over; the one that was hurt comes back.
What the clients saw is judged by the rules of verify. The verdict is JSON on standard output; exit
code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.client import Client
from anabranch.errors import AnabranchError
from anabranch.testing.broker_links import BrokerLinks, Cut, broker_links
from anabranch.testing.publish_gaps import PublishGaps
from anabranch.testing.servers import Member, bookkeeper, oxia, zookeeper
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers
from anabranch.testing.stopping import run_program
from anabranch.verify.check import check_folder
from anabranch.verify.limits import STUCK_IN_WINDOW_S_MAX
from anabranch.verify.records import (
    OWNER_IN_DOUBT,
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
_BROKERS: Final = 3
_OXIA_SHARDS: Final = 2
_CUTS: Final = (Cut.METADATA, Cut.BOOKIES, Cut.STORES)
_NEEDS_SDK: Final = ("C5", "C11")
"""Rules that have something to judge only if the clients hear of their acknowledgements."""


class MetadataKind(StrEnum):
    """On which store the brokers coordinate, and so by what a broker knows that it is no owner."""

    ZOOKEEPER = "zookeeper"
    OXIA = "oxia"
    """Which cannot check a lock in the moment of a write: the lease of its writer decides."""


@dataclass(frozen=True, slots=True)
class BrokerDrillSettings:
    """What a drill does."""

    faults: int
    seed: int
    gap_s: float = 20.0
    """From one fault to the next."""
    pause_s: float = 0.0
    """How long the owner is stopped; 0: it is not."""
    cut_s: float = 0.0
    """How long the owner is cut off from its stores; without this and a pause it is killed."""
    unanswered_s: float = 0.0
    """How long before it is killed the owner stores messages and hears nothing of them."""
    metadata: MetadataKind = MetadataKind.ZOOKEEPER
    rate: float = 200.0
    subscriptions: tuple[SubscriptionType, ...] = tuple(SubscriptionType)
    client: ClientKind = ClientKind.PYPI
    dedup: bool = False
    """Whether the brokers deduplicate: then no take-over may store anything twice."""

    @property
    def fault(self) -> str:
        """What is done to the owner."""
        return "pause" if self.pause_s else "cut" if self.cut_s else "kill"

    @property
    def fault_s(self) -> float:
        """How long it takes."""
        return self.pause_s or self.cut_s

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

    def __init__(
        self,
        brokers: OurBrokers,
        settings: BrokerDrillSettings,
        folder: Path,
        links: Sequence[BrokerLinks] = (),
    ) -> None:
        self._brokers = brokers
        self._links = links
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
            # A client does not know a broker that stands still, or stores nothing, from one that
            # is slow: until its keep-alive says so, it waits for as long as the broker does.
            wait_in_window_s=STUCK_IN_WINDOW_S_MAX + settings.fault_s,
        )
        verdict.figures.update(gaps.figures())
        return really_judged(verdict, settings)

    async def _hurt(self, number: int) -> None:
        owner = await self._owner()
        cut = _CUTS[number % len(_CUTS)] if self._settings.cut_s else None
        name = f"{self._settings.fault} {number} of {owner.name}" + (f" from {cut}" if cut else "")
        self._workload.note(Event(WINDOW_OPENED, name))
        self._workload.note(Event(SERVER_KILLED, name))
        if self._settings.fault_s:
            # What it has in memory it tells until it knows, and its successor never heard of it.
            self._workload.note(Event(OWNER_IN_DOUBT, name))
        if cut is not None:
            await self._cut_off(owner, cut)
        elif self._settings.pause_s:
            await self._pause(owner)
        else:
            await self._kill(owner, number)
        await asyncio.sleep(_REPORTED_S)
        await self._wait_for_progress(f"after {name}")
        self._workload.note(Event(WINDOW_CLOSED, name))
        acknowledged = self._workload.progress.acknowledged
        print(
            f"{name}, {self._settings.faults} in all, {acknowledged:,} acknowledged so far",
            file=sys.stderr,
            flush=True,
        )

    async def _kill(self, owner: Member, number: int) -> None:
        links = self._links_of(owner) if self._settings.unanswered_s else None
        if links is not None:
            links.hold_answers_of_bookies()
            await asyncio.sleep(self._settings.unanswered_s)
        owner.kill()
        if links is not None:
            links.mend()
        if number % _AT_ONCE_EVERY:
            await self._wait_for_another(owner)
        # By the main thread: the kernel ends servers with the thread that started them.
        owner.launch()

    async def _pause(self, owner: Member) -> None:
        until_s = asyncio.get_running_loop().time() + self._settings.pause_s
        owner.pause()
        await self._open_elsewhere(owner)
        await asyncio.sleep(until_s - asyncio.get_running_loop().time())
        owner.resume()
        await self._wait_until_it_knows(owner)

    async def _cut_off(self, owner: Member, cut: Cut) -> None:
        until_s = asyncio.get_running_loop().time() + self._settings.cut_s
        links = self._links_of(owner)
        links.cut(cut, silently=self._random.random() < 0.5)
        if cut.ends_ownership:
            await self._open_elsewhere(owner)
        await asyncio.sleep(until_s - asyncio.get_running_loop().time())
        links.mend()
        if cut.ends_ownership:
            await self._wait_until_it_knows(owner)

    def _links_of(self, member: Member) -> BrokerLinks:
        return self._links[self._brokers.members.index(member)]

    async def _owner(self, other_than: Member | None = None) -> Member:
        asked = [member for member in self._brokers.members if member is not other_than]
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            owner = await asyncio.to_thread(self._brokers.owner, self._topic, asked=asked)
            if owner is not None and owner.running and owner is not other_than:
                return owner
            await asyncio.sleep(_POLL_S)
        raise ServerFailed(f"nobody owned {self._topic} for {_PROGRESS_S_MAX:g} s")

    async def _wait_for_another(self, hurt: Member) -> None:
        """Wait until another broker has the topic, and producers have heard from it."""
        await self._owner(other_than=hurt)
        await asyncio.sleep(_REPORTED_S)
        await self._wait_for_progress(f"after {hurt.name} was hurt")

    async def _wait_until_it_knows(self, hurt: Member) -> None:
        """Wait until the former owner says what the others say.

        Until then it may still hand on receipts that its bookies gave long ago, and its clients
        have yet to look for the next owner: the trouble is not over by the first receipt. It may
        be the owner again by right, if its successor gave up meanwhile.
        """
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            told = await self._told()
            answers = [owner for owner in told.values() if owner]
            if told[hurt.name] and len(answers) > 1 and len(set(answers)) == 1:
                if told[hurt.name] == hurt.name:
                    print(f"{hurt.name} is the owner again, others say so, too", file=sys.stderr)
                return
            await asyncio.sleep(_POLL_S)
        words = ", ".join(f"{name}: {owner or 'no answer'}" for name, owner in told.items())
        raise ServerFailed(
            f"{hurt.name} did not agree with the others for {_PROGRESS_S_MAX:g} s on who owns "
            f"the topic: {words}"
        )

    async def _told(self) -> dict[str, str]:
        """Who owns the topic, as each broker says; empty if it does not answer."""
        found = {}
        for member in self._brokers.members:
            owner = await asyncio.to_thread(self._brokers.owner, self._topic, asked=[member])
            found[member.name] = owner.name if owner else ""
        return found

    async def _open_elsewhere(self, hurt: Member) -> None:
        """Use the topic at another broker: clients of one that stands still ask nobody."""
        others = [
            f"127.0.0.1:{port}"
            for member, port in zip(self._brokers.members, self._brokers.ports, strict=True)
            if member is not hurt
        ]
        try:
            async with asyncio.timeout(self._settings.fault_s):
                await self._owner(other_than=hurt)
                async with Client("pulsar://" + ",".join(others)) as client:
                    await client.reader(self._topic)
        except (TimeoutError, AnabranchError) as error:
            raise ServerFailed(f"nobody took over from {hurt.name}") from error

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


def really_judged(verdict: Verdict, settings: BrokerDrillSettings) -> Verdict:
    """Say how much each rule judged; incomplete if one judged nothing that clients told of."""
    verdict.figures.update({f"judged_{rule.id}": rule.checked for rule in verdict.rules})
    if settings.client is not ClientKind.SDK or verdict.status is not Status.CLEAN:
        return verdict
    idle = [rule.id for rule in verdict.rules if rule.id in _NEEDS_SDK and not rule.checked]
    if not idle:
        return verdict
    reasons = [*verdict.reasons, *(f"rule {name} had nothing to judge" for name in idle)]
    return replace(verdict, status=Status.INCOMPLETE, reasons=reasons)


def _metadata(kind: MetadataKind, held: ExitStack) -> tuple[str, int]:
    """Start a store; its URL and port."""
    if kind is MetadataKind.OXIA:
        server = held.enter_context(oxia(_OXIA_SHARDS))
        return server.url, server.port
    ensemble = held.enter_context(zookeeper(memory=_MEMORY))
    return ensemble.url, ensemble.ports[0]


def drill(settings: BrokerDrillSettings, folder: Path, *, session_timeout_s: float) -> Verdict:
    """Start everything, run one drill, and end everything.

    Raises:
        AnabranchError: if there is no verdict.
    """
    with ExitStack() as held:
        url, port = _metadata(settings.metadata, held)
        init_cluster(url)
        bookies = held.enter_context(bookkeeper(url, 3))
        links: Sequence[BrokerLinks] = ()
        if settings.cut_s or settings.unanswered_s:
            links = held.enter_context(broker_links(_BROKERS, url, port, bookies.ports))
        options = ["--metadata-session-timeout-s", f"{session_timeout_s:g}"]
        options += ["--deduplication"] if settings.dedup else []
        brokers = held.enter_context(
            our_brokers(url, _BROKERS, options=options, links=links, folder=folder / "brokers")
        )
        return asyncio.run(BrokerDrill(brokers, settings, folder / "history", links).run())


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
    add("--cut-s", type=float, default=0.0, help="cut it off from stores for so long instead")
    add("--unanswered-s", type=float, default=0.0, help="it hears of nothing before it is killed")
    add("--metadata", choices=[kind.value for kind in MetadataKind], default="zookeeper")
    add("--session-timeout-s", type=float, default=SESSION_TIMEOUT_S, help="of the brokers")
    add("--rate", type=float, default=200.0, help="messages per second (default: %(default)s)")
    add("--client", choices=[kind.value for kind in ClientKind], default="pypi")
    add("--dedup", action="store_true", help="the brokers deduplicate: nothing is stored twice")
    add("--seed", type=int, default=None, help="repeats the moments of the faults and the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.faults < 1:
        parser.error("at least one fault is needed")
    if asked.pause_s and asked.cut_s:
        parser.error("--pause-s and --cut-s are two kinds of faults")
    settings = BrokerDrillSettings(
        faults=asked.faults,
        seed=SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed,
        gap_s=asked.gap_s,
        pause_s=asked.pause_s,
        cut_s=asked.cut_s,
        unanswered_s=asked.unanswered_s,
        metadata=MetadataKind(asked.metadata),
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
