r"""Kill -9 drill: a server is ended again and again under load, and the histories are judged.

    python -m anabranch.testing.crash_drill --kills 100 -- \
        python -m anabranch standalone --port {port} --web-port {web_port} --data {data}

The server is killed only after it has acknowledged something since its start, at a random moment;
some kills hit it while it is still starting. Only processes started here are ended.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from anabranch.errors import AnabranchError, ConfigError
from anabranch.testing.drill_folders import DrillFolder
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.standalone import Place, Standalone
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
from anabranch.verify.workload import ClientKind, Workload, WorkloadSettings

_POLL_S: Final = 0.05
_SETTLE_S: Final = 0.5
_KILL_AFTER_S_MAX: Final = 2.0
_PROGRESS_S_MAX: Final = 60.0
_KILL_WHILE_STARTING: Final = 0.2
"""The share of kills that is followed by another one before the server is ready."""


class DrillFailed(AnabranchError):
    """The server did not serve again after a kill."""


@dataclass(frozen=True, slots=True)
class DrillSettings:
    """What a drill does."""

    command: tuple[str, ...]
    """The server, with {port}, {web_port} and {data} where they belong."""
    kills: int
    seed: int
    rate: float = 300.0
    producers: int = 4
    subscriptions: tuple[SubscriptionType, ...] = (
        SubscriptionType.EXCLUSIVE,
        SubscriptionType.SHARED,
    )
    dedup: bool = False
    client: ClientKind = ClientKind.PYPI
    ack_lag_s: float = 0.0

    def workload(self, url: str) -> WorkloadSettings:
        """Return the load that the server is under."""
        run = Random(f"run/{self.seed}").randbytes(8).hex()
        return WorkloadSettings(
            url=url,
            topic=f"persistent://public/default/drill-{run}",
            run=run,
            seed=self.seed,
            producers=self.producers,
            subscriptions=self.subscriptions,
            rate=self.rate,
            dedup=self.dedup,
            client=self.client,
            ack_lag_s=self.ack_lag_s,
        )


class CrashDrill:
    """One drill. `folder` gets the server's data and log, and the histories."""

    def __init__(self, settings: DrillSettings, folder: Path) -> None:
        for name in ("{port}", "{data}"):
            if not any(name in part for part in settings.command):
                raise ConfigError(f"the server command has no place for {name}")
        if settings.kills < 1:
            raise ConfigError(f"kills must be above 0, not {settings.kills}")
        program = shutil.which(settings.command[0])
        if program is None:
            raise ConfigError(f"there is no program {settings.command[0]!r}")
        self._settings = settings
        self._random = Random(f"kills/{settings.seed}")
        folder = folder.absolute()  # the server runs in a folder of its own
        place = Place(folder / "server", free_port(), free_port())
        place.data.mkdir(parents=True)
        given = {"{port}": place.port, "{web_port}": place.web_port, "{data}": place.data}
        command = [os.path.abspath(program), *settings.command[1:]]
        for name, value in given.items():
            command = [part.replace(name, str(value)) for part in command]
        self._server = Standalone("server", command, place)
        self._workload = Workload(settings.workload(self._server.service_url), folder / "history")

    async def run(self) -> Verdict:
        """Kill as often as asked, drain, and judge.

        Raises:
            ServerFailed: if the server does not start.
            DrillFailed: if it starts, but acknowledges nothing.
            ClientFailed: if a client process failed.
        """
        workload = self._workload
        try:
            self._server.start()
            await workload.start()
            for number in range(1, self._settings.kills + 1):
                await self._wait_for_progress(number - 1)
                await asyncio.sleep(self._random.uniform(0, _KILL_AFTER_S_MAX))
                self._kill_and_start(number)
            await self._wait_for_progress(self._settings.kills)
            await workload.stop_sending()
            await workload.drain()
        finally:
            await workload.close()
            self._server.stop()
        workload.raise_failure()
        return check_folder(workload.folder)

    async def _wait_for_progress(self, number: int) -> None:
        """Wait until every producer has a receipt since the last kill.

        Libraries come back later and later, so that a slow machine would starve one of them.
        """
        loop = asyncio.get_running_loop()
        # What the clients said while the loop was held up must not count as news.
        await asyncio.sleep(_SETTLE_S)
        before = self._workload.progress.acknowledged_of
        deadline = loop.time() + _PROGRESS_S_MAX
        while not _all_above(self._workload.progress.acknowledged_of, before):
            self._workload.raise_failure()
            if not self._server.running:
                raise DrillFailed(f"the server ended by itself after kill {number}")
            if loop.time() > deadline:
                raise DrillFailed(
                    f"after kill {number} a producer had no receipt for {_PROGRESS_S_MAX:g} s; "
                    f"the server's log is {self._server.log}"
                )
            await asyncio.sleep(_POLL_S)

    def _kill_and_start(self, number: int) -> None:
        # Blocks the loop on purpose: the clients are processes of their own, and the kernel ends
        # the server with its parent only if the main thread started it.
        workload, server = self._workload, self._server
        workload.note(Event(WINDOW_OPENED, f"kill {number}"))
        workload.note(Event(SERVER_KILLED, f"kill {number}"))
        usual_start_s = server.ready_after_s
        server.kill()
        if self._random.random() < _KILL_WHILE_STARTING:
            server.kill_while_starting(self._random.uniform(0, usual_start_s))
            workload.note(Event(SERVER_KILLED, f"kill {number}, while it started"))
        server.start()
        workload.note(Event(WINDOW_CLOSED, f"kill {number}"))
        acknowledged = workload.progress.acknowledged
        print(
            f"kill {number} of {self._settings.kills}: serving after {server.ready_after_s:.2f} s,"
            f" {acknowledged:,} acknowledged so far",
            file=sys.stderr,
            flush=True,
        )


def _all_above(counts: Sequence[int], before: Sequence[int]) -> bool:
    return all(now > then for now, then in zip(counts, before, strict=True))


def parse_arguments(arguments: Sequence[str]) -> tuple[DrillSettings, DrillFolder, bool]:
    """Return settings, folder, and whether to print JSON."""
    prog = "python -m anabranch.testing.crash_drill"
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [options] -- COMMAND ...",
        description="Kill a server again and again under load, then judge what its clients saw.",
    )
    add = parser.add_argument
    add("--kills", type=int, default=10, help="how often (default: %(default)s)")
    add("--seed", type=int, default=None, help="repeats the moments of the kills and the load")
    add("--rate", type=float, default=300.0, help="messages per second (default: %(default)s)")
    add("--producers", type=int, default=4, help="producer processes (default: %(default)s)")
    add("--subscriptions", default="exclusive,shared", help="their types (default: %(default)s)")
    add("--dedup", action="store_true", help="the server deduplicates: nothing is stored twice")
    kinds_of_client = [kind.value for kind in ClientKind]
    add("--client", choices=kinds_of_client, default="pypi", help="the library of the clients")
    add("--ack-lag", type=float, default=0.0, help="seconds of confirmed acks a kill may undo")
    add(
        "--folder",
        type=Path,
        default=None,
        help="for data, log, histories; kept (default: new, kept on failure)",
    )
    add("--output", choices=("text", "json"), default="text", help="how to print the verdict")
    add(
        "command",
        nargs="+",
        metavar="COMMAND",
        help="starts the server; {port}, {web_port} and {data} are filled in",
    )
    found = parser.parse_args(arguments)
    try:
        kinds = tuple(SubscriptionType(kind) for kind in found.subscriptions.split(","))
    except ValueError as error:
        parser.error(f"--subscriptions: {error}")
    settings = DrillSettings(
        command=tuple(found.command),
        kills=found.kills,
        seed=SystemRandom().randrange(1 << 32) if found.seed is None else found.seed,
        rate=found.rate,
        producers=found.producers,
        subscriptions=kinds,
        dedup=found.dedup,
        client=ClientKind(found.client),
        ack_lag_s=found.ack_lag,
    )
    folder = DrillFolder.named(found.folder, "anabranch-drill-")
    return settings, folder, found.output == "json"


def main(arguments: Sequence[str]) -> int:
    """Run a drill: 0 clean, 1 violations, 2 no verdict."""
    settings, folder, as_json = parse_arguments(arguments)
    print(f"seed {settings.seed}, histories and data in {folder.path}", file=sys.stderr)
    try:
        verdict = asyncio.run(CrashDrill(settings, folder.path).run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict.as_json(), indent=2) if as_json else verdict.as_text())
    if verdict.status is Status.CLEAN:
        folder.drop_unless_wanted()
    return {Status.CLEAN: 0, Status.VIOLATED: 1}.get(verdict.status, 2)


if __name__ == "__main__":
    run_program(main)
