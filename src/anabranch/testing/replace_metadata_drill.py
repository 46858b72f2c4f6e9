"""Drill of replacing the metadata store under brokers: kill -9 of who takes part, phase by phase.

    python -m anabranch.testing.replace_metadata_drill --kills 9
    python -m anabranch.testing.replace_metadata_drill --kills 6 --phases halting,leading

Three brokers of ours on a real ZooKeeper, with a bookie; an empty Oxia as target; stock clients and
admin requests all the time. Attempt after attempt is begun and struck in one phase: the broker that
drives, another broker, or the target is killed and comes back. Whatever came of it, the next one
follows; the last is finalized, ZooKeeper is stopped, and all brokers are restarted with the old
configuration. A blow in `finalizing` is the last of its cluster, so each further one gets another.
A blow that came too late for its phase is tried again. Messages are judged by the rules of verify,
metadata by what was acknowledged. The verdict is JSON on standard output; exit code 0 is clean,
1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple

from anabranch.errors import AnabranchError
from anabranch.testing.phase_striker import BROKER, DRIVER, TARGET, Blow, Order
from anabranch.testing.planted import child_command
from anabranch.testing.replacement_stage import (
    OVER,
    PHASE_S_MAX,
    ReplacementStage,
    exit_code,
    figures_of_load,
)
from anabranch.testing.servers import Member
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster
from anabranch.testing.stopping import run_program
from anabranch.verify.records import SERVER_KILLED, Event
from anabranch.verify.verdict import Verdict

FINAL: Final = "finalizing"
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
    ("leading", DRIVER),
    ("copying", TARGET),
    ("switched", DRIVER),
    ("halting", DRIVER),
    ("tailing", BROKER),
    ("switching", DRIVER),
    ("refreezing", TARGET),
    ("preparing", BROKER),
    ("fencing", DRIVER),
    (FINAL, DRIVER),
    ("tailing", TARGET),
    ("verifying", DRIVER),
    ("rejoining", DRIVER),
    ("aborting", DRIVER),
    ("copying", BROKER),
    ("switched", TARGET),
    ("leading", TARGET),
    ("freezing", BROKER),
    ("tailing", DRIVER),
    ("switching", TARGET),
    ("halting", BROKER),
    ("verifying", BROKER),
    ("returning", DRIVER),
    ("preparing", TARGET),
    ("fencing", BROKER),
    ("leading", BROKER),
    ("rejoining", TARGET),
    ("reverting", DRIVER),
    ("aborting", BROKER),
    ("returning", BROKER),
    ("fencing", TARGET),
    ("refencing", DRIVER),
    ("halting", TARGET),
    ("refreezing", BROKER),
    ("returning", TARGET),
    ("refencing", BROKER),
    ("aborting", TARGET),
    ("reverting", TARGET),
    (FINAL, BROKER),
    ("refencing", TARGET),
    (FINAL, TARGET),
)
"""Where, and who; the first ones are the most different."""
PHASES: Final = tuple(dict.fromkeys(phase for phase, _ in BLOWS))
_BACK: Final = ("refreezing", "returning", "refencing", "reverting")
_TRIES_MAX: Final = 8
"""Of a blow that must fall in a phase of some milliseconds."""
_CALM_S: Final = 2.0


class Life(NamedTuple):
    """What is done to one cluster."""

    blows: tuple[tuple[str, str], ...]
    last: str = ""
    """Who is struck while the last attempt is finalized; empty: nobody."""


def lives(kills: int, phases: Sequence[str] = ()) -> list[Life]:
    """Which clusters are needed for so many blows in some phases, or in all of them."""
    wanted = [blow for blow in BLOWS if not phases or blow[0] in phases]
    chosen = list(islice(cycle(wanted), kills))
    passing = tuple(blow for blow in chosen if blow[0] != FINAL)
    first, *others = [victim for phase, victim in chosen if phase == FINAL] or [""]
    return [Life(passing, first), *(Life((), victim) for victim in others)]


class ReplaceMetadataDrill:
    """The life of one cluster that runs already."""

    def __init__(self, cluster: ReplaceableCluster, folder: Path, *, life: Life, seed: int) -> None:
        self._cluster = cluster
        self._life = life
        self._random = Random(seed)
        self.stage = ReplacementStage(cluster, folder, seed=seed)
        self.ends: dict[str, int] = {}
        """How often each phase was come to a rest in after a blow."""
        self.hits: dict[str, int] = {}
        """Blows that fell in their phase, such as `hit_copying_driver`."""
        self.late = 0
        """Blows that came too late for their phase, and were tried again."""

    @property
    def is_whole(self) -> bool:
        """Whether the last blow, if one was wanted, fell in its phase."""
        return not self._life.last or f"hit_{FINAL}_{self._life.last}" in self.hits

    async def run(self) -> Verdict:
        """Strike as asked, end for good, drain, and judge.

        Raises:
            ServerFailed: if an attempt does not come to a rest.
        """
        await self.stage.play(self._strike_all)
        return self.stage.judge()

    async def _strike_all(self) -> None:
        for number, (phase, victim) in enumerate(self._life.blows, start=1):
            for _ in range(_TRIES_MAX):
                if await self._blow(f"{number} of {len(self._life.blows)}", phase, victim):
                    break
            else:
                raise ServerFailed(f"{_TRIES_MAX} blows at {victim} came too late for {phase}")
        await self._end_for_good()

    async def _blow(self, number: str, phase: str, victim: str) -> bool:
        """One attempt and one blow; returns whether it fell in its phase."""
        stage = self.stage
        await asyncio.sleep(_CALM_S)
        attempt = (await stage.status()).get("number", 0) + 1
        window = f"kill {number}: {victim}, {phase}"
        striker = await self._striker(attempt, phase, victim)
        try:
            stage.open_window(window)
            await stage.start()
            if phase == "aborting":
                await stage.ask("abort")
            blow = await self._struck(striker, window, goes_back=phase in _BACK)
            hit = await self._back_again(blow)
            rest = await stage.until("switched", *OVER)
            self.ends[rest["phase"]] = self.ends.get(rest["phase"], 0) + 1
            if rest["phase"] == "switched":
                await stage.roll_back()
            await stage.progress(window)
            stage.close_window(window)
        finally:
            await _end(striker)
        return self._counted(blow, phase, victim, hit, rest)

    def _counted(
        self, blow: Blow, phase: str, victim: str, hit: Member | None, rest: dict[str, Any]
    ) -> bool:
        fell = blow.fell_in(phase)
        if fell:
            name = f"hit_{phase}_{victim}"
            self.hits[name] = self.hits.get(name, 0) + 1
        else:
            self.late += 1
        print(
            f"{phase}, {victim} ({hit.name if hit else 'nobody'}): "
            f"{'hit' if fell else f'too late, in {blow.phase}'}, "
            f"came to {rest['phase']}: {rest.get('error') or '-'}",
            file=sys.stderr,
            flush=True,
        )
        return fell

    async def _striker(self, attempt: int, phase: str, victim: str) -> asyncio.subprocess.Process:
        brokers = self._cluster.brokers
        members = list(zip(brokers.web_ports, brokers.members, strict=True))
        self._random.shuffle(members)
        order = Order(
            url=self._cluster.source.url,
            number=attempt,
            phase=phase,
            victim=victim,
            brokers={f":{port}": member.pid for port, member in members},
            target=self._cluster.target.server.pid,
        )
        striker = await asyncio.create_subprocess_exec(
            *child_command("anabranch.testing.phase_striker", json.dumps(asdict(order))),
            stdout=asyncio.subprocess.PIPE,
        )
        await _line(striker)
        return striker

    async def _struck(
        self, striker: asyncio.subprocess.Process, window: str, *, goes_back: bool = False
    ) -> Blow:
        """Wait for the blow; a rollback that comes to nothing before it is asked for again."""
        said = asyncio.ensure_future(_line(striker))
        while goes_back and not said.done():
            if (await self.stage.status())["phase"] == "switched":
                await self.stage.ask("rollback")
            await asyncio.wait([said], timeout=_CALM_S)
        blow = Blow(**json.loads(await said))
        if blow.pid:
            self.stage.workload.note(Event(SERVER_KILLED, window))
        return blow

    async def _back_again(self, blow: Blow) -> Member | None:
        """Start whoever was struck again, after a while."""
        members = (*self._cluster.brokers.members, self._cluster.target.server)
        hit = next((member for member in members if member.pid == blow.pid), None)
        if hit is not None:
            hit.kill()  # it is dead; now it is known to be
            await asyncio.sleep(self._random.uniform(0, _CALM_S))
            hit.launch()
            await asyncio.to_thread(hit.wait_ready)
        return hit

    async def _end_for_good(self) -> None:
        stage = self.stage
        window = f"finalize, {self._life.last or 'nobody'} struck"
        attempt = await stage.start()
        await stage.until("switched")
        stage.open_window(window)
        hit: Member | None = None
        if self._life.last:
            striker = await self._striker(attempt, FINAL, self._life.last)
            try:
                await stage.ask("finalize")
                blow = await self._struck(striker, window)
                hit = await self._back_again(blow)
            finally:
                await _end(striker)
            self._counted(blow, FINAL, self._life.last, hit, await stage.until("finalized"))
        else:
            await stage.ask("finalize")
        await stage.until("finalized")
        await stage.progress("finalized")
        await stage.leave_source(restarted=hit)
        await stage.restart_brokers()
        stage.close_window(window)


async def _line(striker: asyncio.subprocess.Process) -> bytes:
    assert striker.stdout is not None
    try:
        async with asyncio.timeout(PHASE_S_MAX):
            line = await striker.stdout.readline()
    except TimeoutError as error:
        raise ServerFailed(f"nobody was struck for {PHASE_S_MAX:g} s") from error
    if not line:
        raise ServerFailed("the striker ended without a word")
    return line


async def _end(striker: asyncio.subprocess.Process) -> None:
    if striker.returncode is None:
        try:
            async with asyncio.timeout(10.0):
                await striker.wait()
        except TimeoutError:
            striker.kill()
            await striker.wait()


def _lived(life: Life, folder: Path, seed: int) -> list[tuple[ReplaceMetadataDrill, Verdict]]:
    """Run a cluster, and others like it until the last blow falls in its phase."""
    found: list[tuple[ReplaceMetadataDrill, Verdict]] = []
    while len(found) < _TRIES_MAX:
        place = folder / f"try-{len(found) + 1}"
        with replaceable_cluster(place / "servers", brokers=3) as cluster:
            drill = ReplaceMetadataDrill(cluster, place / "history", life=life, seed=seed)
            found.append((drill, asyncio.run(drill.run())))
        if drill.is_whole:
            return found
        life = Life((), life.last)
    raise ServerFailed(f"{_TRIES_MAX} blows at {life.last} came too late for {FINAL}")


def summary(found: list[tuple[ReplaceMetadataDrill, Verdict]], kills: int, seed: int) -> Any:
    """The verdict as it is printed: that of the first cluster, with counts of all."""
    hits: dict[str, int] = {}
    ends: dict[str, int] = {}
    for drill, _ in found:
        for total, some in ((hits, drill.hits), (ends, drill.ends)):
            for name, count in some.items():
                total[name] = total.get(name, 0) + count
    document = found[0][1].as_json()
    for _, verdict in found[1:]:
        more = verdict.as_json()
        document["counts"] = {
            name: count + more["counts"].get(name, 0) for name, count in document["counts"].items()
        }
        document["more"] = [*document.get("more", []), more]
    loads = [figures_of_load(drill.stage.load) for drill, _ in found]
    return {
        **document,
        **{name: sum((load[name] for load in loads), type(loads[0][name])()) for name in loads[0]},
        "kills": kills,
        "clusters": len(found),
        "seed": seed,
        "blows_too_late": sum(drill.late for drill, _ in found),
        **hits,
        "ends": ends,
    }


def _phases(words: str) -> list[str]:
    phases = words.split(",")
    for phase in phases:
        if phase not in PHASES:
            raise argparse.ArgumentTypeError(f"{phase!r} is none of {', '.join(PHASES)}")
    return phases


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.replace_metadata_drill")
    add = parser.add_argument
    add("--kills", type=int, default=3, help="how often (default: %(default)s)")
    add("--phases", type=_phases, default=[], help="in these only, such as halting,leading")
    add("--seed", type=int, default=None, help="repeats the moments of the kills and the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.kills < 1:
        parser.error("at least one kill is needed")
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-replaced-"))
    print(f"seed {seed}, histories and logs in {folder}", file=sys.stderr)
    found = []
    try:
        for number, life in enumerate(lives(asked.kills, asked.phases), start=1):
            found += _lived(life, folder / f"cluster-{number}", seed)
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    document = summary(found, asked.kills, seed)
    print(json.dumps(document))
    return exit_code([verdict for _, verdict in found], document["wrong"])


if __name__ == "__main__":
    run_program(main)
