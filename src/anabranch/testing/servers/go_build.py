"""Builds the one server that is published as Go sources only: Oxia.

The program is ours (`oxia_program/`), around Oxia's own server. Its `go.sum` pins every module
but the one that has to be changed before it compiles; that one is pinned in the lock file.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.testing.servers.cache import LOCK_FILE, Artifact, digest_of_files
from anabranch.testing.servers.failures import FetchFailed, MissingTool
from anabranch.testing.servers.limits import FETCH_S_MAX

PROGRAM: Final = Path(__file__).with_name("oxia_program")
PROGRAM_FILES: Final = ("go.mod", "go.sum", "main.go")
# The published sources read a field that the newest published `common` module does not have yet.
# It matters only while a shard is being split, which a server in one process never does.
CHANGED_FILE: Final = Path("dataserver", "database", "split_filter.go")
CHANGE_BEGINS: Final = "\tvar deletes []*proto.DeleteRequest\n"
CHANGE_ENDS: Final = "\n\t}\n"
CHANGED_TO: Final = "\tdeletes := append([]*proto.DeleteRequest(nil), req.Deletes...)\n"


def program_digest() -> str:
    """Return one SHA-256 over the sources that this project adds."""
    return digest_of_files(PROGRAM / name for name in PROGRAM_FILES)


def _run_go(arguments: Sequence[str], folder: Path) -> str:
    program = shutil.which("go")
    if program is None:
        raise MissingTool("no go in PATH: install Go 1.26 or newer")
    # Modules are checked against our own go.sum; asking a further service adds nothing.
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOSUMDB": "off"}
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_S_MAX,
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"go {' '.join(arguments)} took over {FETCH_S_MAX} s") from None
    if done.returncode:
        raise FetchFailed(
            f"go {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout


def _change(folder: Path) -> None:
    file = folder / CHANGED_FILE
    text = file.read_text()
    begin = text.index(CHANGE_BEGINS)
    end = text.index(CHANGE_ENDS, begin) + len(CHANGE_ENDS)
    file.write_text(text[:begin] + CHANGED_TO + text[end:])


def build(artifact: Artifact, work: Path) -> Path:
    """Fetch, check, change and compile; the folder with the program is the result.

    Raises:
        MissingTool: if Go is not installed.
        FetchFailed: if a module cannot be had, is not the pinned one, or does not compile.
    """
    module, pinned_sum = artifact.coordinates
    if (found := program_digest()) != artifact.sha256:
        raise FetchFailed(
            f"the sources in {PROGRAM.name} have digest {found}, but {LOCK_FILE.name} pins "
            f"{artifact.sha256}; if they were changed on purpose, write the new digest there"
        )
    (work / "go.mod").write_text("module fetching\n")
    fetched = json.loads(_run_go(["mod", "download", "-json", module], work))
    if fetched["Sum"] != pinned_sum:
        raise FetchFailed(
            f"{module} has sum {fetched['Sum']}, but {LOCK_FILE.name} pins {pinned_sum}"
        )
    source = work / "source"
    source.mkdir()
    for name in PROGRAM_FILES:
        shutil.copyfile(PROGRAM / name, source / name)
    own_copy = source / "oxiad"
    shutil.copytree(fetched["Dir"], own_copy, copy_function=shutil.copyfile)
    for path in (own_copy, *own_copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    _change(own_copy)
    built = work / "built"
    built.mkdir()
    _run_go(
        ["build", "-trimpath", "-tags", "disable_trap", "-o", str(built / "oxia-server"), "."],
        source,
    )
    return built
