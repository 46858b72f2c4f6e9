"""Drill of replacing the metadata store under brokers: kill -9 of who takes part, phase by phase.

    python -m anabranch.testing.replace_metadata_drill --kills 9
    python -m anabranch.testing.replace_metadata_drill --kills 6 --phases halting,leading
    python -m anabranch.testing.replace_metadata_drill --led --kills 4

Three brokers of ours on a real ZooKeeper, with a bookie; an empty Oxia as target; stock clients and
admin requests all the time. Attempt after attempt is begun and struck in one phase: the broker that
drives, another broker, or the target is killed and comes back. Whatever came of it, the next one
follows; the last is finalized, ZooKeeper is stopped, and all brokers are restarted with the old
configuration. A blow in `finalizing` is the last of its cluster, so each further one gets another.
A blow that came too late for its phase is tried again. `--led`: three real bookies take part and
are struck, too, see `replace_led_metadata`. Messages are judged by the rules of verify, metadata by
what was acknowledged; no send may end in doubt, and no request may have to be sent again but in the
time from a kill until who was killed is replaced. The verdict is JSON on standard output; exit code
0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NamedTuple, Protocol

from anabranch.errors import AnabranchError
from anabranch.testing import replace_led_metadata as led
from anabranch.testing.phase_striker import BROKER, DRIVER, TARGET
from anabranch.testing.replacement_stage import (
    OVER,
    ReplacementStage,
    exit_code,
    figures_of_loads,
)
from anabranch.testing.replacement_strikes import (
    CALM_S,
    SESSION_S,
    TRIES_MAX,
    Strikes,
    stray_registration,
)
from anabranch.testing.servers import Member
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, replaceable_cluster
from anabranch.testing.stopping import run_program
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
    ("reverifying", DRIVER),
    ("preparing", TARGET),
    ("fencing", BROKER),
    ("leading", BROKER),
    ("rejoining", TARGET),
    ("reverting", DRIVER),
    ("failing", DRIVER),
    ("reverifying", BROKER),
    ("aborting", BROKER),
    ("returning", BROKER),
    ("fencing", TARGET),
    ("refencing", DRIVER),
    ("halting", TARGET),
    ("refreezing", BROKER),
    ("returning", TARGET),
    ("refencing", BROKER),
    ("failing", TARGET),
    ("aborting", TARGET),
    ("reverting", TARGET),
    ("failing", BROKER),
    ("reverifying", TARGET),
    (FINAL, BROKER),
    ("refencing", TARGET),
    (FINAL, TARGET),
)
"""Where, and who; the first ones are the most different."""
PHASES: Final = tuple(dict.fromkeys(phase for phase, _ in BLOWS))
_BACK: Final = ("reverifying", "refreezing", "returning", "refencing", "reverting")


class Struck(Protocol):
    """A cluster that was struck, and what came of it."""

    stage: ReplacementStage
    strikes: Strikes
    ends: dict[str, int]


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
        self.stage = ReplacementStage(cluster, folder, seed=seed)
        self.strikes = Strikes(self.stage, seed)
        self.ends: dict[str, int] = {}
        """How often each phase was come to a rest in after a blow."""

    @property
    def is_whole(self) -> bool:
        """Whether the last blow, if one was wanted, fell in its phase."""
        return not self._life.last or f"hit_{FINAL}_{self._life.last}" in self.strikes.hits

    async def run(self) -> Verdict:
        """Strike as asked, end for good, drain, and judge.

        Raises:
            ServerFailed: if an attempt does not come to a rest.
        """
        await self.stage.play(self._strike_all)
        return self.stage.judge()

    async def _strike_all(self) -> None:
        for number, (phase, victim) in enumerate(self._life.blows, start=1):
            for _ in range(TRIES_MAX):
                if await self._blow(f"{number} of {len(self._life.blows)}", phase, victim):
                    break
            else:
                raise ServerFailed(f"{TRIES_MAX} blows at {victim} came too late for {phase}")
        await self._end_for_good()

    async def _blow(self, number: str, phase: str, victim: str) -> bool:
        """One attempt and one blow; returns whether it fell in its phase."""
        stage, strikes = self.stage, self.strikes
        await asyncio.sleep(CALM_S)
        attempt = (await stage.status()).get("number", 0) + 1
        window = f"kill {number}: {victim}, {phase}"
        async with AsyncExitStack() as held:
            if phase == "failing":
                await held.enter_async_context(stray_registration(self._cluster.source.url))
            striker = await held.enter_async_context(strikes.striker(attempt, phase, victim))
            stage.open_window(window)
            await stage.start()
            if phase == "aborting":
                await stage.ask("abort")
            blow = await strikes.struck(striker, window, goes_back=phase in _BACK)
            hit = strikes.whom(blow)
            await strikes.back_again(hit)
            rest = await stage.until("switched", *OVER)
            self.ends[rest["phase"]] = self.ends.get(rest["phase"], 0) + 1
            await strikes.recovered(blow, window)
            if rest["phase"] == "switched":
                await stage.roll_back()
            await stage.progress(window)
            stage.close_window(window)
        return strikes.counted(blow, phase, victim, hit, rest)

    async def _end_for_good(self) -> None:
        stage, last = self.stage, self._life.last
        window = f"finalize, {last or 'nobody'} struck"
        attempt = await stage.start()
        await stage.until("switched")
        stage.open_window(window)
        hit: Member | None = None
        if last:
            async with self.strikes.striker(attempt, FINAL, last) as striker:
                await stage.ask("finalize")
                blow = await self.strikes.struck(striker, window)
                hit = self.strikes.whom(blow)
                await self.strikes.back_again(hit)
            rest = await stage.until("finalized")
            await self.strikes.recovered(blow, window)
            self.strikes.counted(blow, FINAL, last, hit, rest)
        else:
            await stage.ask("finalize")
            await stage.until("finalized")
        await stage.progress("finalized")
        await stage.leave_source(restarted=hit)
        await stage.restart_brokers()
        stage.close_window(window)


def _lived(life: Life, folder: Path, seed: int) -> list[tuple[ReplaceMetadataDrill, Verdict]]:
    """Run a cluster, and others like it until the last blow falls in its phase."""
    found: list[tuple[ReplaceMetadataDrill, Verdict]] = []
    while len(found) < TRIES_MAX:
        place = folder / f"try-{len(found) + 1}"
        with replaceable_cluster(
            place / "servers", brokers=3, session_timeout_s=SESSION_S
        ) as cluster:
            drill = ReplaceMetadataDrill(cluster, place / "history", life=life, seed=seed)
            found.append((drill, asyncio.run(drill.run())))
        if drill.is_whole:
            return found
        life = Life((), life.last)
    raise ServerFailed(f"{TRIES_MAX} blows at {life.last} came too late for {FINAL}")


def summary(found: Sequence[tuple[Struck, Verdict]], kills: int, seed: int) -> dict[str, Any]:
    """The verdict as it is printed: that of the first cluster, with counts of all."""
    hits: dict[str, int] = {}
    ends: dict[str, int] = {}
    for drill, _ in found:
        for total, some in ((hits, drill.strikes.hits), (ends, drill.ends)):
            for name, count in some.items():
                total[name] = total.get(name, 0) + count
    document = found[0][1].as_json()
    for _, verdict in found[1:]:
        more = verdict.as_json()
        document["counts"] = {
            name: count + more["counts"].get(name, 0) for name, count in document["counts"].items()
        }
        document["more"] = [*document.get("more", []), more]
    return {
        **document,
        **figures_of_loads([drill.stage.load for drill, _ in found]),
        "kills": kills,
        "clusters": len(found),
        "seed": seed,
        "blows_too_late": sum(drill.strikes.late for drill, _ in found),
        **hits,
        "ends": ends,
        "noticed": [each for drill, _ in found for each in drill.stage.noticed()],
    }


def _phases(words: str) -> list[str]:
    phases = words.split(",")
    for phase in phases:
        if phase not in PHASES:
            raise argparse.ArgumentTypeError(f"{phase!r} is none of {', '.join(PHASES)}")
    return phases


def _all_lived(kills: int, phases: list[str], folder: Path, seed: int) -> list[Any]:
    found = []
    for number, life in enumerate(lives(kills, phases), start=1):
        found += _lived(life, folder / f"cluster-{number}", seed)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.replace_metadata_drill")
    add = parser.add_argument
    add("--kills", type=int, default=3, help="how often (default: %(default)s)")
    add("--phases", type=_phases, default=[], help="in these only, such as halting,leading")
    add("--led", action="store_true", help="with bookies that are led, forward only")
    add("--seed", type=int, default=None, help="repeats the moments of the kills and the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    if asked.kills < 1:
        parser.error("at least one kill is needed")
    if asked.led and not set(asked.phases) <= set(led.PHASES):
        parser.error(f"bookies that are led are struck in {', '.join(led.PHASES)}")
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-replaced-"))
    print(f"seed {seed}, histories and logs in {folder}", file=sys.stderr)
    all_lived = led.all_lived if asked.led else _all_lived
    try:
        found = all_lived(asked.kills, asked.phases, folder, seed)
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    document = summary(found, asked.kills, seed)
    print(json.dumps(document))
    return exit_code([verdict for _, verdict in found], document["noticed"])


if __name__ == "__main__":
    run_program(main)
