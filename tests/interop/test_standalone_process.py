"""`anabranch standalone` as a real process: starts, refuses, stops, and keeps what it was given."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from anabranch.testing.planted import child_command

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
ANABRANCH = child_command("anabranch")
BREAKABLE_DISK = """
import os, anabranch.runtime.real_disk as disk
sync = disk._sync_data
def breakable(fd):
    if os.path.exists(os.environ["BREAK_DISK"]):
        raise OSError(5, "Input/output error")
    sync(fd)
disk._sync_data = breakable
from anabranch.cli.main import run
run()
"""


def anabranch(
    *words: str | Path, stdin: str = "", command=ANABRANCH
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*command, *map(str, words)],
        check=False, input=stdin, capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
    )  # fmt: skip


class Server:
    """A server started for one test, on ports of its own choice."""

    def __init__(self, data: Path, *options: str, command=None, **variables: str) -> None:
        self.data = data
        command = ANABRANCH if command is None else command
        self.log = data.with_name(f"{data.name}-{time.monotonic_ns()}.log")
        words = [*command, "standalone", "--data", str(data), "--port", "0", "--web-port", "0"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*words, *options],
                stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT | variables,
            )  # fmt: skip
        self.announcement = ""
        while "consume" not in self.announcement:
            line = self.process.stdout.readline()
            if not line:
                self.process.wait()
                raise AssertionError(
                    f"ended with {self.process.returncode}: {self.log.read_text()}"
                )
            self.announcement += line
        self.url = re.search(r"pulsar://\S+", self.announcement)[0]
        self.web = re.search(r"http://\S+", self.announcement)[0]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.web + path, timeout=10) as answer:
            return answer.read().decode()

    def end(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        return code


@pytest.fixture
def start(tmp_path):
    servers = []

    def begin(*options: str, data: Path | None = None, **how) -> Server:
        server = Server(data or tmp_path / "data", *options, **how)
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.process.kill()
        server.wait()


def produce(server: Server, *texts: str) -> None:
    words = [word for text in texts for word in ("-m", text)]
    done = anabranch("produce", "t", *words, "--url", server.url)
    assert done.returncode == 0, done.stderr


def consume(server: Server, number: int, *options: str) -> list[str]:
    done = anabranch(
        "consume", "t", "-s", "s", "-n", str(number), "--position", "earliest",
        "--timeout", "20", "--url", server.url, *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.goal("core.B21", part="one command", broken_by="announcement_names_no_address")
def test_commands_it_prints_work_and_the_web_answers(start):
    server = start()
    printed = [line.strip() for line in server.announcement.splitlines() if line.startswith("  ")]
    assert len(printed) == 2
    for line in printed:
        done = subprocess.run(
            shlex.split(line), check=False, capture_output=True, text=True, timeout=60,
            env=ENVIRONMENT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"
    assert server.get("/admin/v2/brokers/health") == "ok"
    lookup = json.loads(server.get("/lookup/v2/topic/persistent/public/default/t"))
    assert lookup["brokerUrl"] == server.url
    assert "anabranch_loop_lag_seconds_max" in server.get("/metrics")


@pytest.mark.goal("core.B21", part="restart", broken_by="acknowledgements_are_forgotten")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_clean_stop_keeps_messages_and_acknowledgements(start, how):
    server = start()
    produce(server, "one", "two", "three")
    assert consume(server, 2) == ["one", "two"]
    assert server.end(how) == 0
    assert "Traceback" not in server.log.read_text()
    again = start()
    assert consume(again, 1) == ["three"]
    assert again.end(how) == 0


@pytest.mark.goal("core.B21", part="kill -9", broken_by="crash_empties_the_open_ledger")
def test_kill_9_keeps_what_was_acknowledged(start):
    server = start()
    produce(server, *map(str, range(50)))
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    assert consume(start(), 50) == [str(n) for n in range(50)]


def test_stop_with_clients_connected_is_clean(start):
    server = start()
    follower = subprocess.Popen(
        [*ANABRANCH, "consume", "t", "-s", "s", "--follow", "--url", server.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 20
        while 'pulsar_broker_consumers_count{cluster="standalone"} 1' not in server.get("/metrics"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        produce(server, "seen")
        assert follower.stdout.readline() == "seen\n"
        assert server.end() == 0
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=20) == 0
        assert follower.stderr.read() == ""
    finally:
        follower.kill()
        follower.communicate()


def test_second_signal_ends_the_process_at_once():
    script = (
        "import asyncio\n"
        "from anabranch.server.process import _stop_on_signals\n"
        "async def hang():\n"
        "    with _stop_on_signals() as stop:\n"
        "        print('up', flush=True)\n"
        "        await stop.wait()\n"
        "        print('stopping', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(hang())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for line in ("up\n", "stopping\n"):
                assert process.stdout.readline() == line
                process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()


def refused(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    return done.stderr


@pytest.mark.goal("core.B26", part="errors", broken_by="errors_keep_their_trace")
@pytest.mark.parametrize("flag", ["--port", "--web-port"])
def test_port_in_use_is_named_with_its_flag_and_nothing_is_made(tmp_path, flag):
    other = "--web-port" if flag == "--port" else "--port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = refused(anabranch("standalone", "--data", tmp_path / "data", flag, port, other, "0"))
    assert f"port {port} of 127.0.0.1 is in use" in text
    assert f"with {flag} " in text
    assert not (tmp_path / "data").exists()


@pytest.mark.goal("core.B26", part="errors", broken_by="errors_keep_their_trace")
def test_folder_in_use_is_refused_and_its_holder_goes_on(start):
    server = start()
    text = refused(anabranch("standalone", "--data", server.data, "--port", "0", "--web-port", "0"))
    assert f"{server.data} is in use by another process" in text
    assert server.get("/admin/v2/brokers/health") == "ok"


@pytest.mark.goal("core.B26", part="errors", broken_by="errors_keep_their_trace")
def test_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    text = refused(anabranch("standalone", "--data", tmp_path, "--port", "0", "--web-port", "0"))
    assert "is not a data folder of Anabranch" in text
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.goal("core.B26", part="errors", broken_by="errors_keep_their_trace")
def test_python_without_asserts_is_refused(tmp_path):
    python, *words = ANABRANCH
    command = (python, "-O", *words)
    text = refused(anabranch("standalone", "--data", tmp_path / "data", command=command))
    assert "python -O" in text
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("store", ["metadata", "ledgers"])
def test_damaged_store_is_refused_by_file_and_left_as_it_is(start, store):
    server = start()
    produce(server, "one", "two")
    assert server.end() == 0
    victim = max((server.data / store).rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
    damaged = bytearray(victim.read_bytes())
    damaged[:4] = b"\xff\xff\xff\xff"
    victim.write_bytes(damaged)
    text = refused(anabranch("standalone", "--data", server.data, "--port", "0", "--web-port", "0"))
    assert victim.name in text
    assert victim.read_bytes() == damaged


def test_failed_sync_ends_the_process_and_is_never_acknowledged(start, tmp_path):
    switch = tmp_path / "broken"
    command = (sys.executable, "-c", BREAKABLE_DISK)
    server = start(command=command, BREAK_DISK=str(switch))
    produce(server, "kept")
    switch.touch()
    done = anabranch("produce", "t", "-m", "lost", "--url", server.url, "--timeout", "3")
    assert done.returncode != 0
    assert server.wait() == 3
    log = server.log.read_text()
    assert "store_failed" in log
    assert "Traceback" not in log
    again = start()
    produce(again, "after")
    assert consume(again, 2)[0] == "kept"


def test_memory_stores_leave_nothing_behind(start, tmp_path):
    server = start("--metadata-url", "memory:", "--ledgers-url", "memory:")
    produce(server, "one")
    assert consume(server, 1) == ["one"]
    assert server.end() == 0
    assert not (tmp_path / "data").exists()


def test_store_in_another_folder_is_kept_there(start, tmp_path):
    elsewhere = ("--ledgers-url", f"embedded:{tmp_path / 'fast-disk'}")
    server = start(*elsewhere)
    produce(server, "one")
    assert server.end() == 0
    assert (tmp_path / "fast-disk" / "ledgers").is_dir()
    assert not (tmp_path / "data" / "ledgers").exists()
    assert consume(start(*elsewhere), 1) == ["one"]
