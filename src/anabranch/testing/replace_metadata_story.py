"""Drill of replacing the metadata store under brokers with nobody hurt: the whole way, under load.

    python -m anabranch.testing.replace_metadata_story --rounds 1
    python -m anabranch.testing.replace_metadata_story --rounds 1 --led

Three brokers of ours on a real ZooKeeper go to Oxia and back, so often as asked, and to Oxia for
good; ZooKeeper is stopped, and every broker restarted with the configuration it had. `--led`: three
real bookies register in the store that is replaced, and are led by Pulsar's flag; there is no way
back then, so one goes forward only, and the bookies are restarted with the address of Oxia, one
after the other, while clients go on. Messages are judged by the rules of verify, metadata by what
was acknowledged; no send may fail, and no request may have to be sent again while the store is
replaced. The verdict is JSON on standard output; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.testing.replacement_stage import (
    OVER,
    ReplacementStage,
    exit_code,
    figures_of_load,
)
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
_STORY: Final = "the store is replaced"


class ReplaceMetadataStory:
    """One cluster that runs already."""

    def __init__(
        self, cluster: ReplaceableCluster, folder: Path, *, rounds: int, led: bool, seed: int
    ) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._led = led
        self.stage = ReplacementStage(cluster, folder, seed=seed)
        self.held_ms: dict[str, list[int]] = {"there": [], "back": []}
        """How long writes waited, by the operation's own trail."""
        self.retried: list[str] = []
        """Requests that were sent again until the new store was in use for good, and why."""
        self.unsure = 0
        """Sends until then whose end is not known to their producer."""

    async def run(self) -> Verdict:
        """Go the whole way, drain, and judge.

        Raises:
            ServerFailed: if an attempt fails, or does not come to a rest.
        """
        await self.stage.play(self._go)
        return self.stage.judge()

    async def _go(self) -> None:
        stage = self.stage
        await asyncio.sleep(_REST_S)
        stage.open_window(_STORY)
        for _ in range(0 if self._led else self._rounds):
            await self._there()
            await self._back()
        await self._there()
        await stage.ask("finalize")
        await stage.until("finalized")
        await stage.progress("finalized")
        self.retried = list(stage.load.retried)
        # Not those that failed for certain: the load sends some that are too large on purpose.
        self.unsure = stage.workload.progress.unknown
        stage.close_window(_STORY)
        stage.open_window("restarts")
        await stage.leave_source()
        if self._led:
            # By the main thread: the kernel ends servers with the thread that started them.
            self._cluster.bookies.move(self._cluster.target.url)
            await stage.progress("with bookies on the new store")
        await stage.restart_brokers()
        stage.close_window("restarts")

    async def _there(self) -> None:
        await self.stage.start()
        await self._rests("there", await self.stage.until("switched", *OVER), "switched")

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


def violations_of(story: ReplaceMetadataStory) -> list[str]:
    """What clients were not to see."""
    found = list(story.stage.load.wrong)
    found += [f"sent again: {each}" for each in story.retried]
    if story.unsure:
        found.append(f"{story.unsure} sends did not end well")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.replace_metadata_story")
    add = parser.add_argument
    add("--rounds", type=int, default=1, help="there and back (default: %(default)s)")
    add("--led", action="store_true", help="with bookies that are led, forward only")
    add("--seed", type=int, default=None, help="repeats the load")
    add("--folder", type=Path, default=None, help="for logs and histories; kept (default: new)")
    asked = parser.parse_args(arguments)
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="anabranch-replaced-"))
    print(f"seed {seed}, histories and logs in {folder}", file=sys.stderr)
    servers = folder / "servers"
    try:
        with (
            led_cluster(servers, BROKERS, BOOKIES, ensemble=2)
            if asked.led
            else replaceable_cluster(servers, BROKERS)
        ) as cluster:
            story = ReplaceMetadataStory(
                cluster, folder / "history", rounds=asked.rounds, led=asked.led, seed=seed
            )
            verdict = asyncio.run(story.run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    violations = violations_of(story)
    held = {f"held_{way}_ms_max": max(all_ms) for way, all_ms in story.held_ms.items() if all_ms}
    print(
        json.dumps(
            {
                **verdict.as_json(),
                **figures_of_load(story.stage.load),
                "metadata_writes_sent_again_before_restarts": len(story.retried),
                "sends_unsure_before_restarts": story.unsure,
                "metadata_write_longest_s": round(story.stage.load.longest_s, 3),
                **held,
                "rounds": 0 if asked.led else asked.rounds,
                "seed": seed,
                "violations": violations,
            }
        )
    )
    return exit_code([verdict], violations)


if __name__ == "__main__":
    run_program(main)
