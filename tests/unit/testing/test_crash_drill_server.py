"""The crash drill handles its server: refuses, kills, starts again, always ends it."""

import os
import sys
from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.testing.crash_drill import CrashDrill, DrillSettings, main, parse_arguments
from anabranch.testing.drill_folders import DrillFolder
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.standalone import Place, Standalone
from anabranch.verify.records import SubscriptionType

WEB_ONLY = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
with open(sys.argv[2] + "/starts", "a") as starts:
    starts.write("x")
time.sleep(float(sys.argv[3]))
HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def web_only(folder: Path, *, delay_s: float) -> Standalone:
    place = Place(folder, free_port(), free_port())
    place.data.mkdir(parents=True)
    arguments = [str(place.web_port), str(place.data), str(delay_s)]
    return Standalone("made", [sys.executable, "-c", WEB_ONLY, *arguments], place)


def test_server_is_killed_before_it_is_ready(tmp_path: Path) -> None:
    server = web_only(tmp_path, delay_s=30)
    server.kill_while_starting(0.5)
    assert_gone(server.pid)
    assert (server.data / "starts").read_text() == "x"
    assert not server.healthy()


@pytest.mark.parametrize(
    ("command", "kills", "complaint"),
    [
        (("server", "{data}"), 1, r"no place for \{port\}"),
        (("server", "{port}"), 1, r"no place for \{data\}"),
        (("server", "{port}", "{data}"), 0, "kills must be above 0"),
        (("no-such-server", "{port}", "{data}"), 1, "no program 'no-such-server'"),
    ],
)
def test_unfit_drill_is_refused(
    tmp_path: Path, command: tuple[str, ...], kills: int, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        CrashDrill(DrillSettings(command=command, kills=kills, seed=1), tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no {port} {data} today')")
    drill = CrashDrill(DrillSettings(command=command, kills=1, seed=1), tmp_path)
    with pytest.raises(ServerFailed, match=rf"no {drill._server.place.port} .* today"):
        await drill.run()
    assert_gone(drill._server.pid)


def test_relative_paths_mean_the_callers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    settings = DrillSettings(command=("./python", "{port}", "{data}"), kills=1, seed=1)
    drill = CrashDrill(settings, Path("drill"))
    program, _, data = drill._server._process.command
    assert program == str(tmp_path / "python"), "not resolved: a venv is known by its link"
    assert data == str(tmp_path / "drill" / "server" / "data")


def test_drill_that_cannot_run_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "drill")
    assert main(["--kills", "0", "--folder", folder, "--", "x", "{port}", "{data}"]) == 2
    assert "kills must be above 0" in capsys.readouterr().err


def test_folder_of_a_drill_that_found_nothing_is_gone_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    new, wanted = DrillFolder.named(None, "drill-"), DrillFolder.named(tmp_path, "drill-")
    assert new.path.parent == tmp_path / "temporary"
    for folder in (new, wanted):
        (folder.path / "history").write_text("")
        folder.drop_unless_wanted()
    assert not new.path.exists()
    assert (wanted.path / "history").exists()


def test_arguments_reach_the_settings(tmp_path: Path) -> None:
    options = ["--kills", "7", "--seed", "5", "--subscriptions", "failover", "--dedup"]
    arguments = [*options, "--folder", str(tmp_path), "--output", "json"]
    settings, folder, as_json = parse_arguments([*arguments, "--", "serve", "--port", "{port}"])
    assert settings == DrillSettings(
        command=("serve", "--port", "{port}"),
        kills=7,
        seed=5,
        subscriptions=(SubscriptionType.FAILOVER,),
        dedup=True,
    )
    assert (folder, as_json) == (DrillFolder(tmp_path, is_own=False), True)
    same = settings.workload("pulsar://x")
    assert same == settings.workload("pulsar://x"), "one seed, one workload"
