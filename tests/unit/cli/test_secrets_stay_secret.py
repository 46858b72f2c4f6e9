"""Canaries in URLs, credential files, settings and the environment of commands that fail."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import AnabranchError, NotFound, without_user_info
from anabranch.telemetry.logs import redact

CANARY = "canary-4711"
WITH_USER = f"user:{CANARY}@127.0.0.1:1"
STORES = (
    f"zk:{WITH_USER}/root",
    f"oxia://{WITH_USER}/n",
    f"anabranch://{WITH_USER}",
    f"unheard-of://{WITH_USER}",
)
COMMANDS = {
    **{f"metadata ls of {url[:7]}": ("metadata", "ls", "--url", url) for url in STORES},
    **{f"standalone on {url[:7]}": ("standalone", "--metadata-url", url) for url in STORES},
    "standalone on bookies": ("standalone", "--ledgers-url", f"bookkeeper:zk:{WITH_USER}"),
    "broker": ("broker", "--metadata-url", STORES[3], "--ledgers-url", "bookkeeper:"),
    "cluster init": (
        *("cluster", "init", "--cluster", "c", "--metadata-url", STORES[3]),
        *("--web-service-url", "http://h:1", "--broker-service-url", "pulsar://h:1"),
    ),
    "ledgers ls": ("ledgers", "ls", f"bookkeeper:{STORES[3]}"),
    "produce": ("produce", "t", "--url", f"pulsar://{WITH_USER}", "-m", "x", "--timeout", "1"),
    "topics list": ("topics", "list", "public/default", "--web-url", f"http://{WITH_USER}"),
    "migrate plan": (
        *("migrate", "metadata", "plan", STORES[0]),
        *("--web-url", "http://127.0.0.1:1"),
    ),
    "verify": ("verify", "run", "--url", f"pulsar://{WITH_USER}", "--duration", "0.1"),
}
FILES = {
    "no TOML": f"format = {CANARY}\n",
    "another format": f'format = "{CANARY}"\nversion = 1\n',
    "a token of another type": (
        f'format = "anabranch.metadata-credentials"\nversion = 1\n[oxia]\ntoken = ["{CANARY}"]\n'
    ),
    "an unknown key": (
        f'format = "anabranch.metadata-credentials"\nversion = 1\n[oxia]\ntokne = "{CANARY}"\n'
    ),
}


def said_by(*words: str, **variables: str) -> str:
    """What a command prints to both streams, and how it failed; it has to fail."""
    result = CliRunner().invoke(app, list(words), env=variables)
    assert result.exit_code != 0, result.output
    return f"{result.output}{result.stderr}{result.exception}"


@pytest.mark.goal("core.S5", part="command line", broken_by="errors_repeat_urls")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_do_not_repeat_passwords_of_urls(name: str) -> None:
    said = said_by(*COMMANDS[name])
    assert CANARY not in said
    assert said.strip()


@pytest.mark.goal("core.S5", part="command line", broken_by="errors_repeat_urls")
def test_nor_those_of_the_environment() -> None:
    assert CANARY not in said_by("metadata", "ls", ANABRANCH_METADATA_URL=STORES[3])


@pytest.mark.parametrize("name", FILES)
def test_files_of_credentials_that_are_wrong_are_named_and_not_shown(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "credentials.toml"
    file.write_text(FILES[name])
    file.chmod(0o600)
    said = said_by("metadata", "ls", "--url", "oxia://127.0.0.1:1/n", "--credentials", str(file))
    assert CANARY not in said
    assert "credentials.toml" in said


def test_configuration_files_are_checked_without_showing_what_they_hide(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.toml"
    file.write_text(f'metadata_url = "{STORES[3]}"\n')
    assert CANARY not in said_by("config", "check", str(file))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"zk:{WITH_USER}/x is gone", "zk:***@127.0.0.1:1/x is gone"),
        (f"bookkeeper:zk:{WITH_USER}", "bookkeeper:zk:***@127.0.0.1:1"),
        (f"'pulsar://{WITH_USER}'", "'pulsar://***@127.0.0.1:1'"),
        (f"http://{CANARY}@h/p?q=1", "http://***@h/p?q=1"),
        ("write to a@b.c, or see x:y", "write to a@b.c, or see x:y"),
        ("persistent://t/n/a:b@c", "persistent://t/n/a:b@c"),
    ],
)
def test_user_and_password_are_cut_out_of_a_text(text: str, shown: str) -> None:
    assert without_user_info(text) == shown
    assert str(NotFound(text)) == shown
    assert redact({"place": text, "deep": [{"url": text}]}) == {
        "place": shown,
        "deep": [{"url": shown}],
    }


def test_an_error_without_words_stays_one() -> None:
    assert str(AnabranchError()) == ""
    assert json.dumps(str(AnabranchError(7))) == '"7"'
