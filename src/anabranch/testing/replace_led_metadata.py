"""Blows while the metadata store is replaced under bookies that are led by Pulsar's flag.

Three brokers of ours and three real bookies on one ZooKeeper, an empty Oxia as target. The driver,
another broker, the target or a bookie is killed. There is no way back: an attempt that fails is
followed by another one, after every bookie was restarted; the first that comes to `switched` is
struck once more there, finalized, ZooKeeper is stopped, and every bookie and broker is restarted.
Further blows fall on another cluster. A bookie that was killed comes back once the attempt rests:
none can start while others have stopped writing.
"""

import asyncio
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from anabranch.metadata.factory import open_store
from anabranch.migrations.freeze_copy.foreign_flag import PARTICIPANTS_PATH
from anabranch.runtime.real import real_runtime
from anabranch.testing.phase_striker import BOOKIE, BROKER, DRIVER, TARGET
from anabranch.testing.replacement_stage import OVER, PHASE_S_MAX, ReplacementStage
from anabranch.testing.replacement_strikes import CALM_S, SESSION_S, TRIES_MAX, Strikes
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, led_cluster
from anabranch.verify.verdict import Verdict

SWITCHED: Final = "switched"
BLOWS: Final = (
    ("freezing", DRIVER),
    ("halting", BOOKIE),
    (SWITCHED, BOOKIE),
    ("freezing", TARGET),
    ("leading", DRIVER),
    (SWITCHED, DRIVER),
    ("freezing", BOOKIE),
    (SWITCHED, TARGET),
    ("freezing", BROKER),
    ("leading", BOOKIE),
    (SWITCHED, BROKER),
    ("halting", DRIVER),
    ("leading", TARGET),
    ("halting", BROKER),
    ("halting", TARGET),
    ("leading", BROKER),
)
PHASES: Final = tuple(dict.fromkeys(phase for phase, _ in BLOWS))
_BROKERS: Final = 3
_BOOKIES: Final = 3
_ENSEMBLE: Final = 2
"""So another bookie can take the place of one that is lost."""
_SETTINGS: Final = {"zkTimeout": "10000"}
"""For so long a bookie that is dead has its registration."""
_CLUSTERS_MAX: Final = 40
Pair = tuple[str, str]


class LedDrill:
    """The life of one cluster that runs already."""

    def __init__(
        self,
        cluster: ReplaceableCluster,
        folder: Path,
        *,
        before: list[Pair],
        after: list[Pair],
        seed: int,
    ) -> None:
        """`before` and `after` are blows until the switch and after it; which fell is removed."""
        self._cluster = cluster
        self._before, self._after = before, after
        self.stage = ReplacementStage(cluster, folder, seed=seed)
        self.strikes = Strikes(self.stage, seed, cluster.bookies.members)
        self.ends: dict[str, int] = {}
        """How often each phase was come to a rest in after a blow."""
        self._tries = 0

    async def run(self) -> Verdict:
        """Strike until the switch and once after it, end for good, drain, and judge.

        Raises:
            ServerFailed: if an attempt does not come to a rest.
        """
        await self.stage.play(self._live)
        return self.stage.judge()

    async def _live(self) -> None:
        stage = self.stage
        await self._until_registered()
        while not await self._attempt():
            for bookie in self._cluster.bookies.members:
                await stage.restart(bookie)  # else no plan takes it
            await self._until_registered()
        window = "finalize"
        stage.open_window(window)
        if self._after:
            await self._strike_switched(*self._after[0])
        await stage.ask("finalize")
        await stage.until("finalized")
        await stage.progress("finalized")
        await stage.leave_source()
        await stage.move_bookies()
        await stage.restart_brokers()
        stage.close_window(window)

    async def _until_registered(self) -> None:
        """Wait until every bookie takes part; a plan takes one that only starts for a stranger."""
        store = await open_store(self._cluster.source.url, real_runtime())
        try:
            async with asyncio.timeout(PHASE_S_MAX):
                while len(await store.children(PARTICIPANTS_PATH)) < _BOOKIES:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise ServerFailed(f"no {_BOOKIES} bookies take part") from error
        finally:
            await store.close()

    async def _attempt(self) -> bool:
        """One attempt, with a blow if one is left; returns whether it came to the switch."""
        stage, strikes = self.stage, self.strikes
        await asyncio.sleep(CALM_S)
        if not self._before:
            await stage.start()
            rest = await stage.until(SWITCHED, *OVER)
            if rest["phase"] != SWITCHED:
                raise ServerFailed(f"nobody was hurt, but {rest['phase']}: {rest['error']}")
            return True
        phase, victim = self._before[0]
        number = (await stage.status()).get("number", 0) + 1
        window = f"kill of {victim}, {phase}"
        async with strikes.striker(number, phase, victim) as striker:
            stage.open_window(window)
            await stage.start()
            blow = await strikes.struck(striker, window)
            hit = strikes.whom(blow)
            if victim != BOOKIE:
                await strikes.back_again(hit)
            rest = await stage.until(SWITCHED, *OVER)
            if victim == BOOKIE:
                await strikes.back_again(hit)
            self.ends[rest["phase"]] = self.ends.get(rest["phase"], 0) + 1
            await strikes.recovered(blow, window)
            stage.close_window(window)
        self._note(strikes.counted(blow, phase, victim, hit, rest), self._before)
        return bool(rest["phase"] == SWITCHED)

    async def _strike_switched(self, phase: str, victim: str) -> None:
        number = (await self.stage.status())["number"]
        async with self.strikes.striker(number, phase, victim) as striker:
            blow = await self.strikes.struck(striker, f"kill of {victim}, {phase}")
            hit = self.strikes.whom(blow)
            await self.strikes.back_again(hit)
        rest = await self.stage.status()
        await self.strikes.recovered(blow, phase)
        self._note(self.strikes.counted(blow, phase, victim, hit, rest), self._after)

    def _note(self, fell: bool, blows: list[Pair]) -> None:
        """A blow that fell is not wanted any more; one that did not is tried again."""
        self._tries = 0 if fell else self._tries + 1
        if fell:
            blows.pop(0)
        elif self._tries >= TRIES_MAX:
            raise ServerFailed(f"{TRIES_MAX} blows came too late for {blows[0]}")


def all_lived(
    kills: int, phases: list[str], folder: Path, seed: int
) -> list[tuple[LedDrill, Verdict]]:
    """Cluster after cluster, until every blow has fallen."""
    wanted = [blow for blow in BLOWS if not phases or blow[0] in phases]
    chosen = list(islice(cycle(wanted), kills))
    before = [blow for blow in chosen if blow[0] != SWITCHED]
    after = [blow for blow in chosen if blow[0] == SWITCHED]
    found: list[tuple[LedDrill, Verdict]] = []
    while before or after:
        if len(found) == _CLUSTERS_MAX:
            raise ServerFailed(f"after {_CLUSTERS_MAX} clusters {len(before + after)} are left")
        place = folder / f"cluster-{len(found) + 1}"
        with led_cluster(
            place / "servers",
            _BROKERS,
            _BOOKIES,
            ensemble=_ENSEMBLE,
            session_timeout_s=SESSION_S,
            bookie_settings=_SETTINGS,
        ) as cluster:
            drill = LedDrill(
                cluster, place / "history", before=before, after=after, seed=seed + len(found)
            )
            found.append((drill, asyncio.run(drill.run())))
    return found
