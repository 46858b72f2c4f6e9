"""The command line without a server: help, speed, and errors in one line."""

import inspect
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import typer.core
import typer.main
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.cli.standalone import standalone
from anabranch.server.settings import SETTINGS
from anabranch.testing.planted import child_command

OURS = {name: setting for name, setting in SETTINGS.items() if name != "metadata_port"}
"""The settings of `standalone`; the port is for `anabranch metadata serve`."""


def anabranch(*words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    return subprocess.run(
        child_command("anabranch", *words),
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment | variables,
    )


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_version_does_not_load_the_server():
    script = (
        "import sys; from anabranch.cli.main import app; "
        "sys.exit(sum(name in sys.modules for name in "
        "('pulsar', 'starlette', 'uvicorn', 'uvloop', 'google.protobuf')))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_bug_of_ours_keeps_its_plain_trace():
    script = (
        "import sys; from anabranch.cli import main\n"
        "def fail() -> None: 1 / 0\n"
        "main.app.command('fail')(fail); sys.argv[1:] = ['fail']; main.run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert "Traceback (most recent call last):" in done.stderr
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_every_command_explains_itself():
    commands = typer.main.get_command(app).commands
    assert {"standalone", "produce", "consume"} <= set(commands)
    for name in commands:
        result = CliRunner().invoke(app, [name, "--help"])
        assert result.exit_code == 0, name


def test_help_of_the_metadata_server_names_every_default():
    shown = CliRunner().invoke(app, ["metadata", "serve", "--help"]).stdout
    words = " ".join(shown.split())
    for name in ("data", "host", "metadata_port", "log_level", "log_format"):
        setting = SETTINGS[name]
        assert f"{setting.help} ({setting.allowed}; default: {setting.default})" in words


def test_wrong_port_of_the_metadata_server_is_named_by_its_flag():
    refused = anabranch("metadata", "serve", "--port", "99999")
    assert refused.returncode == 2
    assert refused.stderr == "error: --port: 99999 is not a whole number from 0 to 65535\n"


def test_help_names_every_flag_whole_on_a_narrow_terminal():
    shown = CliRunner().invoke(app, ["standalone", "--help"], env={"COLUMNS": "80"}).stdout
    assert [s.flag for s in OURS.values() if f"  {s.flag} " not in shown] == []


@pytest.mark.goal("core.B27", broken_by="command_lacks_flags")
def test_there_is_one_flag_per_setting():
    parameters = dict(inspect.signature(standalone).parameters)
    parameters.pop("config")
    assert list(parameters) == list(OURS)
    for name, parameter in parameters.items():
        assert parameter.default.param_decls[0].split("/")[0] == SETTINGS[name].flag


@pytest.mark.goal("core.B26", part="errors", broken_by="nobody_is_waited_for")
@pytest.mark.parametrize("command", [["produce", "t", "-m", "x"], ["consume", "t", "-s", "s"]])
def test_nobody_listening_is_said_at_once(command, free_port):
    began = time.monotonic()
    url = f"pulsar://127.0.0.1:{free_port}"
    done = anabranch(*command, "--url", url)
    assert done.returncode == 2
    assert done.stderr == (f"error: nothing answers at {url}: is the server running? (make run)\n")
    assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["produce", "t", "-m", "x", "--url", "here"], "--url 'here' is not an address"),
        (["produce", "t", "-m", "x", "--url", "pulsar://h:x"], "'x' is not a port number"),
        (["produce", "t", "--count", "3"], "--count repeats -m messages"),
        (["standalone", "--port", "99999"], "--port: 99999 is not a whole number from 0"),
        (["standalone", "--log-level", "loud"], "--log-level: 'loud' is not debug or"),
        (["standalone", "--config", "/none.toml"], "file /none.toml cannot be read"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(words, text):
    done = anabranch(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def leaves(command: typer.core.TyperGroup, *words: str) -> Iterator[tuple[str, ...]]:
    """Every command that does something."""
    for name, each in command.commands.items():
        if isinstance(each, typer.core.TyperGroup):
            yield from leaves(each, *words, name)
        else:
            yield (*words, name)


ONLY_DONE_OR_NOT = ("config init", "config docs", "ledgers ls", "ledgers describe", "ledgers read")
"""What the help of the whole command says of exit codes is all that there is to say."""


def test_help_says_the_exit_codes() -> None:
    runner = CliRunner()
    assert "Exit code 0: done; 2: it could not be done" in runner.invoke(app, ["--help"]).output
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    silent = [
        " ".join(words)
        for words in leaves(group)
        if "Exit code 0:" not in runner.invoke(app, [*words, "--help"]).output
    ]
    assert sorted(silent) == sorted(ONLY_DONE_OR_NOT)
