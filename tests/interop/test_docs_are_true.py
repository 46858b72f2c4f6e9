"""Code in the README and in the guides does what the page says, against a server of ours.

Blocks tagged `python` are run as programs. In blocks tagged `console`, lines after `$ ` are run and
must print the lines that follow. Each page gets a server without data and a folder of its own.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.testing.servers import anabranch_standalone

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_URL = "pulsar://127.0.0.1:6650"
DEFAULT_WEB_URL = "http://127.0.0.1:8080"
COMMAND = ".venv/bin/anabranch "
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


class Step(NamedTuple):
    """Something a page shows."""

    words: list[str]
    printed: str | None


def steps_of(page: Path, url: str, web_url: str) -> Iterator[Step]:
    for language, body in BLOCK.findall(page.read_text()):
        if language == "python":
            program = body.replace(DEFAULT_URL, url).replace(DEFAULT_WEB_URL, web_url)
            yield Step([sys.executable, "-c", program], None)
            continue
        for command, printed in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n)*)", body, re.MULTILINE):
            assert command.startswith(COMMAND), f"not a command of ours: {command}"
            words = shlex.split(command.removeprefix(COMMAND))
            if words[0] != "metadata":  # those name their stores themselves
                words += ["--url", url]
            yield Step([sys.executable, "-m", "anabranch", *words], printed)


def run(step: Step, folder: Path) -> None:
    done = subprocess.run(
        step.words,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        env=ENVIRONMENT, cwd=folder,
    )  # fmt: skip
    if step.printed is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.stdout == step.printed


PAGES_WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def test_the_pages_for_beginners_show_code() -> None:
    assert {page.name for page in PAGES_WITH_CODE} >= {"README.md", "first-steps.md"}


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: page.name)
def test_page_is_true(page: Path, tmp_path: Path) -> None:
    with anabranch_standalone() as server:
        steps = list(steps_of(page, server.service_url, server.web_url))
        assert steps, "a page with code has something to run"
        for step in steps:
            run(step, tmp_path)
