"""Kill drill of a Spark stream: driver, worker and broker are ended, each row is stored once.

    python -m anabranch.testing.spark_kill_drill --kills 20

A driver copies a topic of two partitions to another topic. So often as asked the driver with its
Java, a worker that runs its tasks, and the broker are ended with SIGKILL, at a random moment while
rows wait to be copied. The verdict is JSON; exit code 0 says that each was ended so often, nearly
always with rows on their way, and that every row is there once, in the order of its key. Only
processes started here are ended.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.client import Client
from anabranch.errors import AnabranchError
from anabranch.testing.drill_folders import DrillFolder
from anabranch.testing.planted import child_command, child_python
from anabranch.testing.servers.ours import anabranch_standalone
from anabranch.testing.servers.process import bound_to_parent
from anabranch.testing.servers.standalone import Standalone
from anabranch.testing.stopping import run_program
from pyspark_anabranch import DefaultSource
from pyspark_anabranch.offsets import Offsets, parse_offsets
from pyspark_anabranch.places import BEGINNING, Place

ROWS_PER_KILL: Final = 400
"""More than are copied until the kill, so that it meets a batch under way."""
AMID_SHARE_MIN: Final = 0.75
"""Of the kills, so many have to come while rows wait."""
_KEYS: Final = 7
_NAMESPACE: Final = "public/killed"
_FROM, _TO = f"{_NAMESPACE}/from", f"{_NAMESPACE}/to"
_MOMENT_S_MAX: Final = 3.0
_MOMENTS_MAX: Final = 5
_PROGRESS_S_MAX: Final = 400.0
_POLL_S: Final = 0.1


class DrillFailed(AnabranchError):
    """The copy did not go on after a kill."""


class Driver:
    """The Spark driver: a Python process and its Java, one process group."""

    def __init__(self, server: Standalone, folder: Path) -> None:
        self._folder = folder
        self._command = child_command(
            "anabranch.testing.spark_copier",
            server.service_url,
            server.web_url,
            _FROM,
            _TO,
            str(folder / "checkpoint"),
        )
        self._environment = {"PYSPARK_PYTHON": child_python(folder)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it says is kept."""
        with (
            (self._folder / "batches.log").open("ab") as said,
            (self._folder / "driver.log").open("ab") as complained,
        ):
            self._process = subprocess.Popen(
                bound_to_parent(self._command),
                stdout=said,
                stderr=complained,
                start_new_session=True,
                env=os.environ | self._environment,
            )

    def kill(self) -> None:
        """End driver and Java as kill -9 does; workers end when nobody talks to them."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def batches(self) -> int:
        """How many batches were done, over all runs."""
        return len(self._said)

    @property
    def end(self) -> Offsets:
        """How far the last batch went of which it said so."""
        said = self._said
        return parse_offsets(json.loads(said[-1])) if said else {}

    @property
    def _said(self) -> list[bytes]:
        return (self._folder / "batches.log").read_bytes().split(b"\n")[:-1]

    @property
    def complaint(self) -> str:
        """The last that it had to complain of."""
        said = (self._folder / "driver.log").read_text(errors="replace").splitlines()
        return said[-1] if said else "it said nothing"

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def workers(self) -> list[int]:
        """Python processes that Spark forked to run tasks; others plan, and look for news."""
        assert self._process is not None
        parents = {int(each.name): _parent(each) for each in Path("/proc").glob("[0-9]*")}
        found = []
        for process, parent in parents.items():
            line, above = process, []
            while line is not None and line > 1:
                above.append(line)
                line = parents.get(line) or 0
            if self._process.pid in above and _is_worker(process) and _is_worker(parent):
                found.append(process)
        return sorted(found)


def _parent(place: Path) -> int | None:
    try:
        return int((place / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None


def _is_worker(process: int | None) -> bool:
    try:
        said = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"pyspark.daemon" in said and b"pyspark.worker" in said


class KillDrill:
    """One drill."""

    def __init__(self, server: Standalone, folder: Path, seed: int) -> None:
        self._server = server
        self._driver = Driver(server, folder)
        self._random = Random(f"spark kills/{seed}")
        self._sent: list[tuple[bytes, bytes]] = []
        self._places: list[tuple[str, Place]] = []
        """Where the rows are that were sent."""

    def run(self, kills: int) -> dict[str, Any]:
        """Kill each of the three so often, wait for the copy, and judge.

        Raises:
            DrillFailed: if the copy stands still.
        """
        self._ask("PUT", f"namespaces/{_NAMESPACE}", b"{}")
        self._ask("POST", f"namespaces/{_NAMESPACE}/deduplication", b"true")
        self._ask("POST", f"namespaces/{_NAMESPACE}/retention",
                  b'{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}')  # fmt: skip
        self._ask("PUT", f"persistent/{_FROM}/partitions", b"2")
        self._ask("PUT", f"persistent/{_TO}")
        # A topic that nobody uses is deleted, and a driver may take longer than that to start.
        for topic in (_TO, f"{_FROM}-partition-0", f"{_FROM}-partition-1"):
            place = b'{"ledgerId": -1, "entryId": -1}'
            self._ask("PUT", f"persistent/{topic}/subscription/keeps", place)
        order = ["driver", "worker", "broker"] * kills
        self._random.shuffle(order)
        killed, amid = dict.fromkeys(order, 0), 0
        try:
            self._driver.start()
            for kind in order:
                amid += self._is_amid_rows()
                self._kill(kind)
                killed[kind] += 1
            self._wait(lambda: self._waiting() == 0)
            found = self._read()
        finally:
            self._driver.kill()
        violations = judged(self._sent, found)
        if amid < AMID_SHARE_MIN * len(order):
            violations.append(f"only {amid} of {len(order)} kills met rows on their way")
        return {
            "kills": killed,
            "kills_amid": amid,
            "rows": len(self._sent),
            "batches": self._driver.batches,
            "violations": violations,
        }

    def _is_amid_rows(self) -> bool:
        """Come to a random moment of a batch: whether rows are on their way then.

        The copy may be over before the moment comes; then there are more rows, and another moment.
        """
        for _ in range(_MOMENTS_MAX):
            done = self._driver.batches
            while self._waiting() < ROWS_PER_KILL:
                asyncio.run(self._send())
            self._wait(partial(self._has_gone_on, done))
            time.sleep(self._random.uniform(0, _MOMENT_S_MAX))
            if self._waiting() > 0:
                return True
        return False

    def _kill(self, kind: str) -> None:
        if kind == "driver":
            self._driver.kill()
            self._driver.start()
        elif kind == "broker":
            self._server.kill()
            self._server.start()
        else:
            self._wait(lambda: bool(self._driver.workers()))
            os.kill(self._random.choice(self._driver.workers()), signal.SIGKILL)

    def _has_gone_on(self, batches: int) -> bool:
        return self._driver.batches > batches

    def _waiting(self) -> int:
        """How many rows are not copied yet, as far as the driver has said."""
        end = self._driver.end
        return sum(place >= end.get(topic, BEGINNING) for topic, place in self._places)

    def _wait(self, done: Callable[[], bool]) -> None:
        """Wait for something while batches are done.

        Raises:
            DrillFailed: if none was done for long, or the driver ended.
        """
        batches = self._driver.batches
        deadline = time.monotonic() + _PROGRESS_S_MAX
        while not done():
            if not self._driver.running:
                raise DrillFailed(f"the driver ended by itself: {self._driver.complaint}")
            if self._driver.batches != batches:
                batches = self._driver.batches
                deadline = time.monotonic() + _PROGRESS_S_MAX
            if time.monotonic() > deadline:
                raise DrillFailed(
                    f"no batch was done for {_PROGRESS_S_MAX:g} s: {self._driver.complaint}"
                )
            time.sleep(_POLL_S)

    async def _send(self) -> None:
        """Publish rows, numbered for each key; all are stored when this ends."""
        async with Client(self._server.service_url) as client:
            producers = [
                await client.producer(f"{_FROM}-partition-{part}", batching=None)
                for part in range(2)
            ]
            answers, topics = [], []
            for number in range(len(self._sent), len(self._sent) + ROWS_PER_KILL):
                key, value = b"%d" % (number % _KEYS), b"%d" % number
                self._sent.append((key, value))
                part = number % _KEYS % 2
                topics.append(f"persistent://{_FROM}-partition-{part}")
                answers.append(await producers[part].send_soon(value, key=key))
            found = await asyncio.gather(*answers)
        places = (Place(each.ledger_id, each.entry_id) for each in found)
        self._places += zip(topics, places, strict=True)

    def _read(self) -> list[tuple[bytes, bytes]]:
        options = {"serviceUrl": self._server.service_url, "adminUrl": self._server.web_url}
        reader = DefaultSource(options | {"topic": _TO}).reader(None)  # type: ignore[arg-type]
        return [
            (row["key"], row["value"])
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.select(["key", "value"]).to_pylist()
        ]

    def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        request = urllib.request.Request(
            f"{self._server.web_url}/admin/v2/{path}", body, method=method
        )
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30):
            pass


def judged(sent: Sequence[tuple[bytes, bytes]], found: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """What is wrong with a copy: rows that are missing, there twice, or out of order."""
    wrong = []
    if missing := set(sent) - set(found):
        wrong.append(f"{len(missing)} rows are missing, such as {min(missing)}")
    if (twice := len(found) - len(set(found))) > 0:
        wrong.append(f"{twice} rows are there more than once")
    if unknown := set(found) - set(sent):
        wrong.append(f"{len(unknown)} rows were never sent")
    for key in sorted({key for key, _ in sent}):
        if not wrong and _of(key, found) != _of(key, sent):
            wrong.append(f"rows of the key {key!r} are in another order")
    return wrong


def _of(key: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    return [value for each, value in rows if each == key]


@contextmanager
def prepared(folder: Path, seed: int) -> Iterator[KillDrill]:
    """A server of its own, and a drill on it."""
    (folder / "server").mkdir(parents=True)
    with anabranch_standalone(folder=folder / "server") as server:
        yield KillDrill(server, folder, seed)


def main(arguments: Sequence[str]) -> int:
    """Run the drill: 0 if every row is there once, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args(arguments)
    seed = SystemRandom().randrange(10**6) if options.seed is None else options.seed
    folder = DrillFolder.named(options.folder, "anabranch-spark-kills-")
    with prepared(folder.path, seed) as drill:
        verdict = {"seed": seed, **drill.run(options.kills)}
    print(json.dumps(verdict, indent=1))
    if verdict["violations"]:
        return 1
    folder.drop_unless_wanted()
    return 0


if __name__ == "__main__":
    run_program(main)
