"""The files in `deploy` name commands, settings, ports and paths that exist."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from anabranch import limits
from anabranch.admin.health import HEALTH_ENDPOINTS
from anabranch.security import Right
from anabranch.server.settings import SETTINGS
from anabranch.server.settings_sources import load_settings

ROOT = Path(__file__).parents[3]
IMAGE = (ROOT / "deploy" / "container" / "Containerfile").read_text().replace("\\\n", " ")
UNIT = (ROOT / "deploy" / "systemd" / "anabranch.service").read_text()
FLAGS = {setting.flag for setting in SETTINGS.values()} | {"--config"}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", IMAGE, re.MULTILINE)


def test_the_image_copies_what_is_there() -> None:
    copied = [word for line in instructions("COPY") for word in shlex.split(line)[:-1]]
    ours = [word for word in copied if not word.startswith(("-", "/"))]
    assert [name for name in ours if not (ROOT / name).exists()] == []
    assert {"src", "pyproject.toml"} <= set(ours)


def test_the_image_has_the_versions_that_were_tested(tmp_path: Path) -> None:
    (made, *_) = (part for part in instructions("RUN")[0].split("&&") if "pinned.txt" in part)
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    subprocess.run(["sh", "-c", made], cwd=tmp_path, check=True, timeout=20)
    pinned = (tmp_path / "pinned.txt").read_text().splitlines()
    locked = re.findall(r"^(\S+==\S+)", (ROOT / "requirements" / "dev.lock").read_text(), re.M)
    assert [line.split()[0] for line in pinned] == locked
    names = {line.partition("==")[0] for line in pinned}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["oxia"]]
    assert {re.split(r"[\[<>=~; ]", each)[0].lower() for each in wanted} <= names


def test_the_image_has_settings_that_the_server_takes() -> None:
    environment = dict(word.split("=", 1) for word in shlex.split(*instructions("ENV")))
    settings = load_settings(flags={}, environment=environment, config_file=None)
    assert (settings.host, settings.data) == ("0.0.0.0", "/var/lib/anabranch")
    assert instructions("EXPOSE") == [f"{settings.port} {settings.web_port}"]
    assert instructions("VOLUME") == [str(settings.data)]
    assert [json.loads(line) for line in instructions("CMD")] == [["standalone"]]


def test_the_image_asks_a_path_that_needs_no_token() -> None:
    (check,) = instructions("HEALTHCHECK")
    (path,) = re.findall(r"http://127\.0\.0\.1:8080(/[^']*)'", check)
    rights = {each.path: each.right for each in HEALTH_ENDPOINTS}
    assert rights[path] is Right.ANYBODY


def test_the_unit_starts_a_command_that_exists_and_waits_for_its_end() -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    program, noun, *words = shlex.split(command)
    assert (Path(program).name, noun) == ("anabranch", "standalone")
    assert {word for word in words if word.startswith("--")} <= FLAGS
    (waits_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(waits_s) >= limits.STOP_S_MAX
