"""`anabranch metadata serve` as a real process: starts, refuses, stops, and serves a standalone."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.process import free_port

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
ANABRANCH = (sys.executable, "-m", "anabranch")


class Serving:
    """A child process that has said that it is ready."""

    def __init__(self, log: Path, *words: str | Path) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*ANABRANCH, *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env=ENVIRONMENT,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        if "ready" not in self.ready:
            self.process.wait()
            raise AssertionError(f"ended with {self.process.returncode}: {log.read_text()}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    words = ("metadata", "serve", "--data", tmp_path / "data", "--port", "0")
    server = Serving(tmp_path / "server.log", *words, "--log-format", "json")
    yield server
    server.end()


async def opened(server: Serving) -> MetadataStore:
    url = server.ready.split()[-1]
    return await open_store(url, real_runtime(), session_timeout_s=5)


def refusal(*words: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [*ANABRANCH, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    return done.returncode, done.stderr


async def test_serves_and_stops_cleanly(served: Serving) -> None:
    assert served.ready.startswith("anabranch metadata is ready: anabranch://127.0.0.1:")
    store = await opened(served)
    await store.put("/kept", b"1")
    assert await asyncio.to_thread(served.stop) == 0
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[0] == "started"
    assert events[-1] == "stopped"
    await store.close()


async def test_folder_and_port_are_held_by_one_process(served: Serving, tmp_path: Path) -> None:
    code, words = refusal("metadata", "serve", "--data", tmp_path / "data", "--port", "0")
    assert code == 2
    assert str(tmp_path / "data") in words
    port = served.ready.rpartition(":")[2].strip()
    code, words = refusal("metadata", "serve", "--data", tmp_path / "other", "--port", port)
    assert code == 2
    assert f"port {port} of 127.0.0.1 is in use" in words
    assert "Traceback" not in words


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    code, words = refusal("metadata", "serve", "--data", tmp_path, "--port", "0")
    assert code == 2
    assert "holiday.jpg" in words


def test_standalone_keeps_its_metadata_there(served: Serving, tmp_path: Path) -> None:
    url = served.ready.split()[-1]
    port = free_port()
    words = ("standalone", "--data", tmp_path / "broker", "--port", port, "--web-port", "0")
    for _ in range(2):
        broker = Serving(tmp_path / "broker.log", *words, "--metadata-url", url)
        try:
            service = f"pulsar://127.0.0.1:{port}"
            code, error = refusal("produce", "kept", "-m", "hello", "--url", service)
            assert code == 0, error
            assert broker.stop() == 0
        finally:
            broker.end()
    assert not (tmp_path / "broker/metadata").exists()

    async def look() -> list[str]:
        store = await opened(served)
        try:
            return await store.children("/managed-ledgers/public/default/persistent")
        finally:
            await store.close()

    assert asyncio.run(look()) == ["kept"]


def test_standalone_without_its_metadata_server_says_so(tmp_path: Path) -> None:
    url = f"anabranch://127.0.0.1:{free_port()}"
    code, words = refusal(
        *("standalone", "--data", tmp_path / "broker", "--port", "0", "--web-port", "0"),
        *("--metadata-url", url, "--metadata-session-timeout-s", "1"),
    )
    assert code == 2
    assert f"no metadata server at {url.removeprefix('anabranch://')}" in words
