"""Children are started, waited for and ended, whatever happens around them."""

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.testing.servers import (
    ServerFailed,
    ServerProcess,
    Standalone,
    anabranch_standalone,
    free_port,
)
from anabranch.testing.servers.limits import TEST_PORT_MAX, TEST_PORT_MIN

HEALTHY = """
import http.server, pathlib, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "standalone", sys.argv
starts = pathlib.Path(options["--data"]) / "starts"
starts.write_text((starts.read_text() if starts.exists() else "") + options["--port"] + " ")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/admin/v2/brokers/health" else 404)
        self.end_headers()

    def log_message(self, *arguments):
        pass

print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(options["--web-port"])), Handler).serve_forever()
"""
FAKE = (sys.executable, "-c", HEALTHY)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return gone(pid)


@pytest.fixture
def python_child(tmp_path: Path) -> Callable[[str], ServerProcess]:
    def make(code: str) -> ServerProcess:
        command = [sys.executable, "-c", code]
        return ServerProcess("child", command, folder=tmp_path, log=tmp_path / "child.log")

    return make


def file_exists(path: Path) -> Callable[[], bool]:
    return path.exists


def test_ports_are_free_distinct_and_not_for_outgoing_connections() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(TEST_PORT_MIN <= port <= TEST_PORT_MAX < 32768 for port in ports)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[0]))


def test_a_port_in_use_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        draws = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(
            "anabranch.testing.servers.process.SystemRandom.randint", lambda *_: next(draws)
        )
        monkeypatch.setattr("anabranch.testing.servers.process._handed_out", set())
        assert free_port() == free


def test_readiness_is_waited_for(
    tmp_path: Path, python_child: Callable[[str], ServerProcess]
) -> None:
    child = python_child(
        "import time\n"
        "while time.process_time() < 0.2: pass\n"
        "open('ready', 'w').close(); time.sleep(60)"
    )
    try:
        assert 0.2 <= child.start(file_exists(tmp_path / "ready")) < 10
        assert child.running
        assert child.resident_bytes() > 1_000_000
        assert child.cpu_s() >= 0.15
        assert child.cpu_wait_s() > 0, "nobody is given a processor in no time at all"
    finally:
        child.stop()
    assert not child.running
    assert gone(child.pid)


def test_a_child_that_ends_early_shows_its_log(
    python_child: Callable[[str], ServerProcess],
) -> None:
    child = python_child("raise SystemExit('no such option: --spoon')")
    with pytest.raises(ServerFailed, match=r"(?s)ended before it was ready.*--spoon"):
        child.start(lambda: False)
    assert gone(child.pid)


def test_a_child_that_is_not_ready_in_time_is_ended(
    python_child: Callable[[str], ServerProcess],
) -> None:
    child = python_child("import time; print('slow', flush=True); time.sleep(60)")
    with pytest.raises(ServerFailed, match="not ready in time"):
        child.start(lambda: False, timeout_s=0.3)
    assert gone(child.pid)


def test_a_child_that_ignores_the_request_to_end_is_ended(
    tmp_path: Path, python_child: Callable[[str], ServerProcess]
) -> None:
    child = python_child(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "open('ready', 'w').close(); time.sleep(60)"
    )
    child.start(file_exists(tmp_path / "ready"))
    child.stop(timeout_s=0.2)
    assert gone(child.pid)


def test_what_the_child_started_ends_with_it(
    tmp_path: Path, python_child: Callable[[str], ServerProcess]
) -> None:
    child = python_child(
        "import pathlib, subprocess, time; p = subprocess.Popen(['sleep', '60']);"
        "pathlib.Path('part').write_text(str(p.pid)); pathlib.Path('part').rename('ready');"
        "time.sleep(60)"
    )
    child.start(file_exists(tmp_path / "ready"))
    child.kill()
    assert wait_gone(int((tmp_path / "ready").read_text()))


def test_an_interrupted_start_leaves_nothing(
    python_child: Callable[[str], ServerProcess],
) -> None:
    child = python_child("import time; time.sleep(60)")

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.start(interrupted)
    assert gone(child.pid)


def test_the_server_lives_as_long_as_the_body() -> None:
    with anabranch_standalone(command=FAKE) as server:
        assert server.healthy()
        pid, folder = server.pid, server.place.folder
        assert server.service_url == f"pulsar://127.0.0.1:{server.place.port}"
        assert server.web_url == f"http://127.0.0.1:{server.place.web_port}"
    assert gone(pid)
    assert not server.healthy()
    assert not folder.exists()


def test_killed_and_restarted_it_keeps_ports_and_data(tmp_path: Path) -> None:
    with anabranch_standalone(folder=tmp_path, command=FAKE) as server:
        first = server.pid
        server.kill()
        assert not server.running
        server.restart()
        assert server.pid != first
        assert server.healthy()
    assert (tmp_path / "data" / "starts").read_text() == f"{server.place.port} " * 2
    assert (tmp_path / "anabranch.log").read_text() == "serving\nserving\n"


def test_a_failing_body_ends_the_server_and_leaves_the_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Standalone] = []

    def fail() -> None:
        with anabranch_standalone(command=FAKE) as server:
            seen.append(server)
            raise LookupError("of the body")

    with pytest.raises(LookupError, match="of the body"):
        fail()
    (server,) = seen
    assert gone(server.pid)
    assert str(server.log) in capsys.readouterr().err
    assert server.log.read_text() == "serving\n"
    assert not server.data.exists()


def test_a_server_that_does_not_start_leaves_the_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = (sys.executable, "-c", "raise SystemExit('disk on fire')")
    with (
        pytest.raises(ServerFailed, match="disk on fire"),
        anabranch_standalone(folder=tmp_path, command=command),
    ):
        pytest.fail("the body must not run")
    assert "disk on fire" in (tmp_path / "anabranch.log").read_text()
    assert str(tmp_path / "anabranch.log") in capsys.readouterr().err
    assert (tmp_path / "data").is_dir(), "a folder the caller gave is the caller's"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_server_does_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal, sys
from anabranch.testing.servers import anabranch_standalone
with anabranch_standalone(folder=pathlib.Path({str(tmp_path)!r}), command={FAKE!r}) as server:
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(server.pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    launcher = ServerProcess(
        "launcher", [sys.executable, "-c", code], folder=tmp_path, log=tmp_path / "launcher.log"
    )
    with pytest.raises(ServerFailed, match="ended before"):
        launcher.start(lambda: False, timeout_s=30)
    assert wait_gone(int((tmp_path / "pid").read_text()))
