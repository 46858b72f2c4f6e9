"""`anabranch doctor`: what it finds, what it advises, and that it leaves everything as it was."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import machine
from anabranch.cli.machine import State
from anabranch.cli.main import app
from anabranch.server.settings import Settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    # The ports of a server that happens to run here are none of this test's business.
    for name in ("PORT", "WEB_PORT"):
        monkeypatch.setenv(f"ANABRANCH_{name}", "0")


def diagnose(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--output", "json", *words])
    report = json.loads(result.stdout)
    assert report["fine"] == (result.exit_code == 0)
    return result.exit_code, {finding["name"]: finding for finding in report["findings"]}


def test_fine_machine_ends_with_0_and_nothing_is_left_behind(tmp_path: Path) -> None:
    code, found = diagnose("--data", str(tmp_path / "data"))
    assert code == 0
    assert list(tmp_path.iterdir()) == []
    assert set(found) == {
        "python", "event loop", "settings", "data folder", "stored data", "free space",
        "open files", "port", "web port", "clock", "java", "peer servers", "go",
    }  # fmt: skip
    assert "a sync takes" in found["data folder"]["detail"]
    assert found["stored data"]["detail"] == "none yet"
    for finding in found.values():
        assert finding["detail"]
        assert finding["fix"] or finding["state"] == "good", finding


def test_text_is_for_people(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path)])
    assert "python        good: " in result.stdout
    assert "a server can run here" in result.stderr


def test_port_in_use_is_bad_and_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finding, _ = machine.ports(Settings(port=port, web_port=0))
    assert finding.state is State.BAD
    assert f"127.0.0.1:{port}" in finding.detail
    assert "another --port" in finding.fix


def test_wrong_settings_are_all_named(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("prot = 1\nport = true\n")
    result = CliRunner().invoke(app, ["doctor", "--config", str(file), "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{file}:1: prot is no setting; did you mean port?" in result.stdout
    assert f"{file}:2: port: True is not a whole number" in result.stdout


def test_files_that_settings_name_in_vain_are_all_told(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'authentication = "token"\ntoken_secret_key = "/nope/key"\n'
        f'ledgers_credentials = "/nope/ledgers"\ndata = "{tmp_path}"\n'
    )
    result = CliRunner().invoke(app, ["doctor", "--config", str(file)])
    assert result.exit_code == 1
    assert "somebody else's: it holds 'a.toml'" in result.stdout, "the folder of the settings"
    assert "--token-secret-key: credentials file /nope/key cannot be read" in result.stdout
    assert "--ledgers-credentials: credentials file /nope/ledgers cannot" in result.stdout


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("holiday.jpg", b"", "somebody else's: it holds 'holiday.jpg'"),
        ("anabranch.json", b"{}", "is not the identity of an Anabranch data folder"),
        (
            "anabranch.json",
            b'{"magic": "anabranch data folder", "version": 9, "cluster_id": "x"}',
            "has format version 9; this build knows 1",
        ),
    ],
)
def test_folder_that_is_not_ours_is_bad(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    code, found = diagnose("--data", str(tmp_path))
    assert code == 1
    assert said in found["stored data"]["detail"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_weak_machine_gets_advice_and_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SYNC_S_MAX", 0.0)
    monkeypatch.setattr(machine, "FREE_BYTES_MIN", 1 << 60)
    monkeypatch.setattr(machine, "OPEN_FILES_MIN", 1 << 60)
    monkeypatch.setattr(machine, "CLOCK_DRIFT_S_MAX", -1.0)
    code, found = diagnose("--data", str(tmp_path))
    assert code == 0
    for name in ("data folder", "free space", "open files", "clock"):
        assert found[name]["state"] == "weak", name
        assert found[name]["fix"], name


def test_folder_that_cannot_be_written_is_bad(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    finding = machine.disk(tmp_path / "file")
    assert finding.state is State.BAD
    assert "cannot be written" in finding.detail
