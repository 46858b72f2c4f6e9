"""Drill of replacing the metadata store under brokers with nobody killed: all the way, under load.

    python -m anabranch.testing.replace_metadata_story --rounds 1
    python -m anabranch.testing.replace_metadata_story --rounds 1 --restarts
    python -m anabranch.testing.replace_metadata_story --rounds 1 --led

Three brokers of ours on a real ZooKeeper go to Oxia and back, so often as asked, and to Oxia for
good; ZooKeeper is stopped, and every broker restarted with the configuration it had. `--restarts`:
on the way there, and at rest after it, every broker, every bookie and both stores are restarted,
one after the other. `--led`: three real bookies register in the store that is replaced, and are led
by Pulsar's flag; there is no way back then, so one goes forward only, and the bookies are restarted
with the address of Oxia, one after the other, while clients go on. Messages are judged by the rules
of verify, metadata by what was acknowledged; no send may end in doubt, and no request may have to
be sent again but while somebody is restarted. The verdict is JSON on standard output; exit code 0
is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.testing.large_replacement import fill, missing
from anabranch.testing.replacement_stage import (
    OVER,
    ReplacementStage,
    exit_code,
    figures_of_loads,
)
from anabranch.testing.servers import Member
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.replaceable_cluster import (
    ReplaceableCluster,
    led_cluster,
    replaceable_cluster,
)
from anabranch.testing.stopping import run_program
from anabranch.verify.verdict import Verdict

BROKERS: Final = 3
BOOKIES: Final = 3
_REST_S: Final = 5.0
"""At each phase that rests; somebody reads and writes meanwhile."""
_SHOWN: Final = 5
_STORY: Final = "the store is replaced"
_NODES: Final = 8_000
_NODES_PER_S: Final = 200.0
"""With so many of them at this rate everybody can be restarted before writes are held. The load
    changes about a quarter of it."""
_RESTARTED_SESSION_S: Final = 30.0
"""Longer than a store takes to start, as it is by default."""
_UNDER_WAY: Final = ("preparing", "copying", "tailing", "verifying")


class ReplaceMetadataStory:
    """One cluster that runs already."""

    def __init__(
        self,
        cluster: ReplaceableCluster,
        folder: Path,
        *,
        rounds: int,
        led: bool,
        restarts: bool,
        seed: int,
    ) -> None:
        self._cluster = cluster
        self._rounds = 0 if led else rounds
        self._led = led
        self._restarts = restarts
        self.stage = ReplacementStage(cluster, folder, seed=seed)
        self.held_ms: dict[str, list[int]] = {"there": [], "back": []}
        """How long writes waited, by the operation's own trail."""
        self.restarted: dict[str, int] = {}
        """How many were restarted in each phase, such as `restarted_copying`."""
        self.lost: list[str] = []
        """What is not in the new store of what was there before."""

    async def run(self) -> Verdict:
        """Go the whole way, drain, and judge.

        Raises:
            ServerFailed: if an attempt fails, or does not come to a rest.
        """
        await self.stage.play(self._go)
        return self.stage.judge()

    async def _go(self) -> None:
        stage = self.stage
        if self._restarts:
            await fill(self._cluster.source.url, _NODES)
        await asyncio.sleep(_REST_S)
        stage.open_window(_STORY)
        for number in range(self._rounds + 1):
            await self._there(restarts=self._restarts and not number)
            if number < self._rounds:
                await self._back()
        await stage.ask("finalize")
        await stage.until("finalized")
        await stage.progress("finalized")
        stage.close_window(_STORY)
        stage.open_window("restarts")
        await stage.leave_source()
        if self._led:
            await stage.move_bookies()
        await stage.restart_brokers()
        stage.close_window("restarts")
        if self._restarts:
            self.lost = await missing(self._cluster.target.url, _NODES)

    async def _there(self, *, restarts: bool = False) -> None:
        stage = self.stage
        if not restarts:
            await stage.start()
            await self._rests("there", await stage.until("switched", *OVER), "switched")
            return
        await stage.start(nodes_per_s=_NODES_PER_S)
        await stage.until("copying")
        await self._restart_all(*_UNDER_WAY)
        await self._rests("there", await stage.until("switched", *OVER), "switched")
        await self._restart_all("switched")

    async def _restart_all(self, *phases: str) -> None:
        """One after the other, while the operation is in one of some phases."""
        cluster = self._cluster
        members: list[Member] = [
            *cluster.brokers.members,
            *cluster.bookies.members,
            cluster.target.server,
            *cluster.source.members,
        ]
        for member in members:
            await self.stage.restart(member)
            phase = (await self.stage.status())["phase"]
            print(f"{phase}: {member.name} was restarted", file=sys.stderr, flush=True)
            if phase not in phases:
                raise ServerFailed(f"{phase} before {member.name} was restarted")
            name = f"restarted_{phase}"
            self.restarted[name] = self.restarted.get(name, 0) + 1

    async def _back(self) -> None:
        await self.stage.ask("rollback")
        found = await self.stage.until("rolled back", "failed")
        await self._rests("back", found, "rolled back")

    async def _rests(self, way: str, found: dict[str, Any], wanted: str) -> None:
        if found["phase"] != wanted or found["error"]:
            raise ServerFailed(f"{found['phase']}, not {wanted}: {found['error']}")
        before_ms = self.held_ms["there"][-1] if way == "back" else 0
        self.held_ms[way].append(found["held_ms"] - before_ms)
        await asyncio.sleep(_REST_S)
        await self.stage.progress(f"at {wanted}")
        print(f"{wanted}, writes waited {self.held_ms[way][-1]} ms", file=sys.stderr, flush=True)


def noticed_in(story: ReplaceMetadataStory) -> list[str]:
    """What clients were not to see."""
    lost = [f"{path} is not what it was" for path in story.lost[:_SHOWN]]
    return [*story.stage.noticed(), *lost]


def document_of(story: ReplaceMetadataStory, verdict: Verdict) -> dict[str, Any]:
    """What is printed."""
    held = {f"held_{way}_ms_max": max(all_ms) for way, all_ms in story.held_ms.items() if all_ms}
    return {
        **verdict.as_json(),
        **figures_of_loads([story.stage.load]),
        **held,
        **story.restarted,
        "noticed": noticed_in(story),
    }


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.replace_metadata_story")
    add = parser.add_argument
    add("--rounds", type=int, default=1, help="there and back (default: %(default)s)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--restarts", action="store_true", help="everybody, in turn, on the first way"
    )
    ways.add_argument("--led", action="store_true", help="with bookies that are led, forward only")
    add("--seed", type=int, default=None, help="repeats the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-replaced-"))
    print(f"seed {seed}, histories and logs in {folder}", file=sys.stderr)
    try:
        with _servers(folder / "servers", led=asked.led, restarts=asked.restarts) as cluster:
            story = ReplaceMetadataStory(
                cluster,
                folder / "history",
                rounds=asked.rounds,
                led=asked.led,
                restarts=asked.restarts,
                seed=seed,
            )
            verdict = asyncio.run(story.run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    document = document_of(story, verdict)
    print(json.dumps({**document, "rounds": 0 if asked.led else asked.rounds, "seed": seed}))
    return exit_code([verdict], document["noticed"])


def _servers(
    folder: Path, *, led: bool, restarts: bool
) -> AbstractContextManager[ReplaceableCluster]:
    if led:
        return led_cluster(folder, BROKERS, BOOKIES, ensemble=2)
    if restarts:
        return replaceable_cluster(
            folder,
            BROKERS,
            bookies=BOOKIES,
            ensemble=2,
            session_timeout_s=_RESTARTED_SESSION_S,
        )
    return replaceable_cluster(folder, BROKERS)


if __name__ == "__main__":
    run_program(main)
