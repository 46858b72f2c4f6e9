"""Kill -9 drill of `anabranch metadata serve`: what clients were told must be there afterwards.

    python -m anabranch.testing.metadata_drill --kills 100

Several client processes write all the time while the server is killed and started again. At the end
one client is killed as well: its ephemeral node must vanish within its session's timeout and those
of the others stay. The verdict is one line of JSON; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.drill_folders import DrillFolder
from anabranch.testing.metadata_load import SESSION_TIMEOUT_S
from anabranch.testing.planted import child_command
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.process import ServerProcess, free_port
from anabranch.testing.stopping import run_program

_KILL_AFTER_S_MAX: Final = 1.5
_PROGRESS_S_MAX: Final = 60.0
_POLL_S: Final = 0.05
_VANISH_SLACK_S: Final = 2.0


@dataclass(slots=True)
class Verdict:
    """What a drill found."""

    kills: int = 0
    acknowledged: int = 0
    drawn: int = 0
    seed: int = 0
    sessions_lost: int = 0
    """Of clients that were not answered for so long that they gave their session up."""
    vanished_after_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The verdict as it is printed."""
        return {
            "drill": "served metadata",
            "status": "violated" if self.violations else "clean",
            "kills": self.kills,
            "acknowledged": self.acknowledged,
            "drawn": self.drawn,
            "sessions_lost": self.sessions_lost,
            "vanished_after_s": round(self.vanished_after_s, 2),
            "seed": self.seed,
            "violations": self.violations[:20],
        }


class MetadataDrill:
    """One drill; `folder` gets the data, the logs and the histories."""

    def __init__(self, folder: Path, *, kills: int, seed: int, clients: int = 3) -> None:
        self._folder = folder.absolute()
        self._kills = kills
        self._random = Random(seed)
        self._port = free_port()
        self.url = f"anabranch://127.0.0.1:{self._port}"
        serve = ("metadata", "serve", "--data", str(self._folder / "data"))
        self._server = ServerProcess(
            "metadata",
            child_command("anabranch", *serve, "--port", str(self._port)),
            folder=self._folder,
            log=self._folder / "server.log",
        )
        self._histories = [self._folder / f"client-{number}.jsonl" for number in range(clients)]
        self._clients = [
            ServerProcess(
                history.stem,
                child_command(
                    "anabranch.testing.metadata_load", self.url, history.stem, str(history)
                ),
                folder=self._folder,
                log=self._folder / f"{history.stem}.log",
            )
            for history in self._histories
        ]
        self.verdict = Verdict(seed=seed)

    def run(self) -> Verdict:
        """Kill as often as asked, then judge.

        Raises:
            ServerFailed: if the server or a client does not start, or nothing goes on.
        """
        try:
            self._start_server()
            for client, history in zip(self._clients, self._histories, strict=True):
                client.start(lambda file=history: file.exists() and file.stat().st_size > 0)  # type: ignore[misc]
            for number in range(1, self._kills + 1):
                self._wait_for_progress()
                time.sleep(self._random.uniform(0, _KILL_AFTER_S_MAX))
                self._server.kill()
                self._start_server()
                self.verdict.kills = number
                print(f"kill {number} of {self._kills}", file=sys.stderr, flush=True)
            self._wait_for_progress()
            asyncio.run(self._judge())
        finally:
            for process in (*self._clients, self._server):
                process.kill()
        return self.verdict

    def _start_server(self) -> None:
        self._server.start(self._answers)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def _wait_for_progress(self) -> None:
        sizes = [history.stat().st_size for history in self._histories]
        deadline = time.monotonic() + _PROGRESS_S_MAX
        while any(
            history.stat().st_size == size
            for history, size in zip(self._histories, sizes, strict=True)
        ):
            for client in (*self._clients, self._server):
                if not client.running:
                    raise ServerFailed(f"{client.name} ended by itself; {client.describe_log()}")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"some client was not answered for {_PROGRESS_S_MAX:g} s; "
                    f"{self._server.describe_log()}"
                )
            time.sleep(_POLL_S)

    # --- judging ------------------------------------------------------------------------------

    async def _judge(self) -> None:
        store = await open_store(self.url, real_runtime(), session_timeout_s=SESSION_TIMEOUT_S)
        await self._kill_a_client(store)
        for client in self._clients[1:]:
            client.stop()
        if left := await store.children("/e"):
            self._violated(f"ephemeral nodes of closed clients are there: {left}")
        drawn: list[str] = []
        for history in self._histories:
            ended = history != self._histories[0]
            drawn += await self._check_history(store, history.stem, _facts(history), ended=ended)
        if len(set(drawn)) != len(drawn):
            self._violated("a sequential number was given out twice")
        there = {f"/q/{name}" for name in await store.children("/q")}
        if missing := set(drawn) - there:
            self._violated(f"sequential nodes are gone: {sorted(missing)[:3]}")
        self.verdict.drawn = len(drawn)
        await store.close()

    async def _kill_a_client(self, store: MetadataStore) -> None:
        names = [history.stem for history in self._histories]
        begun = time.monotonic()
        while (held := await store.children("/e")) != sorted(names):
            # A client whose session ended during the last outage shows itself in its next one.
            if time.monotonic() > begun + SESSION_TIMEOUT_S + _VANISH_SLACK_S:
                self._violated(f"living clients hold {held}")
                break
            await asyncio.sleep(_POLL_S)
        self._clients[0].kill()
        begun = time.monotonic()
        while await store.exists(f"/e/{names[0]}"):
            if time.monotonic() > begun + SESSION_TIMEOUT_S + _VANISH_SLACK_S:
                self._violated("the ephemeral node of a killed client is still there")
                break
            await asyncio.sleep(_POLL_S)
        self.verdict.vanished_after_s = time.monotonic() - begun
        if await store.children("/e") != sorted(names[1:]):
            self._violated("an ephemeral node of a living client is gone")

    async def _check_history(
        self, store: MetadataStore, name: str, facts: list[dict[str, Any]], *, ended: bool
    ) -> list[str]:
        acknowledged: dict[str, int] = {}
        drawn: list[str] = []
        clean = False
        for fact in facts:
            if "a" in fact:
                path, number = fact["a"]
                acknowledged[path] = number
                self.verdict.acknowledged += 1
            elif "q" in fact:
                if drawn and fact["q"] <= drawn[-1]:
                    self._violated(f"{fact['q']} came after {drawn[-1]}")
                drawn.append(fact["q"])
            elif "lost" in fact:
                self.verdict.sessions_lost += 1
            elif "wrong" in fact:
                self._violated(fact["wrong"])
            clean = "end" in fact
        if ended and not clean:
            self._violated(f"{name} did not stop cleanly")
        for path, number in acknowledged.items():
            node = await store.get(path)
            value = int(node.value) if node is not None else 0
            if value not in (number, number + 1):
                self._violated(f"{path} is {value}, acknowledged was {number}")
        return drawn

    def _violated(self, text: str) -> None:
        self.verdict.violations.append(text)


def _facts(history: Path) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    for line in history.read_text().splitlines():
        try:
            facts.append(json.loads(line))
        except ValueError:
            break  # the last line of a process that was killed
    return facts


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.metadata_drill")
    parser.add_argument("--kills", type=int, default=10, help="how often (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=3, help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the moments of the kills")
    parser.add_argument("--folder", type=Path, default=None, help="for data and logs; kept")
    found = parser.parse_args(arguments)
    if found.kills < 1 or found.clients < 2:
        parser.error("at least one kill and two clients are needed")
    seed = SystemRandom().randrange(1 << 32) if found.seed is None else found.seed
    folder = DrillFolder.named(found.folder, "anabranch-metadata-drill-")
    folder.path.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, data and histories in {folder.path}", file=sys.stderr)
    try:
        drill = MetadataDrill(folder.path, kills=found.kills, seed=seed, clients=found.clients)
        verdict = drill.run()
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict.as_json()))
    if not verdict.violations:
        folder.drop_unless_wanted()
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    run_program(main)
