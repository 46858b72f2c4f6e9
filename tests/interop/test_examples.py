"""Every example runs against a server of ours, as a user would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone

SCRIPTS = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "administer.py": r"administered, and nothing is left",
    "asyncio_sdk.py": r"sent 6 messages to 3 partitions",
    "produce_consume.py": r"received 40 messages on a shared subscription: \[[1-9]\d*, [1-9]\d*\]",
}

ADDRESSES = {
    "administer.py": lambda server: ("--url", server.service_url, "--web-url", server.web_url),
    "asyncio_sdk.py": lambda server: ("--url", server.service_url, "--web-url", server.web_url),
    "produce_consume.py": lambda server: ("--url", server.service_url),
}


@pytest.fixture(scope="module")
def server():
    with anabranch_standalone() as running:
        yield running


def test_every_example_is_run():
    there = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert there == {*LAST_LINES, "first_server.sh"}


@pytest.mark.parametrize("own_folder", [True, False])
def test_first_server_from_configuration_to_messages(own_folder, tmp_path):
    folder = [str(tmp_path / "here")] if own_folder else []
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [EXAMPLES / "first_server.sh", *folder],
        capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path,
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:-1] == ["one order", "another"]
    assert done.stdout.splitlines()[-1].startswith("stopped; the data ")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == (["here"] if own_folder else []), "nothing is left behind"


@pytest.mark.parametrize("name", LAST_LINES)
def test_example(server, name):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *ADDRESSES[name](server)],
        capture_output=True, text=True, check=False, timeout=100, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(LAST_LINES[name], done.stdout.splitlines()[-1])
