"""A copy that is refused leaves nothing behind where its target was to be made."""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_metadata_commands import metadata, refused
from test_metadata_diff_and_pace import OLD, ROOT, exported

from anabranch.metadata.store import AccessRight

CLOSED = (AccessRight(31, "digest", "a:b"),)
Case = Callable[[Path], tuple[str | Path, ...]]


def damaged(folder: Path) -> tuple[str | Path, ...]:
    whole = Path(exported(folder, "whole", [ROOT, OLD]).removeprefix("file:")).read_bytes()
    (folder / "file").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    return ("restore", folder / "file", "--url")


def missing(folder: Path) -> tuple[str | Path, ...]:
    return ("copy", exported(folder, "file", [ROOT, OLD]), "--prefix", "/none")


def closed(folder: Path) -> tuple[str | Path, ...]:
    return ("copy", exported(folder, "file", [ROOT, OLD._replace(access=CLOSED)]))


def unknown_checkpoint(folder: Path) -> tuple[str | Path, ...]:
    (folder / "checkpoint").write_text("junk")
    source = exported(folder, "file", [ROOT, OLD])
    return ("copy", source, "--checkpoint", folder / "checkpoint")


@pytest.mark.goal("core.M8", part="tools", broken_by="targets_are_made_first")
@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        (damaged, 2, "corrupt data"),
        (missing, 1, "nothing at or below /none"),
        (closed, 2, "--drop-acls"),
        (unknown_checkpoint, 2, "is not a checkpoint"),
    ],
)
def test_nothing_is_made_for_a_copy_that_is_refused(
    tmp_path: Path, case: Case, code: int, said: str
) -> None:
    target = tmp_path / "target"
    assert said in refused(code, *case(tmp_path), f"embedded:{target}")
    assert not target.exists()


def test_a_target_is_made_for_a_copy_that_is_not(tmp_path: Path) -> None:
    source = exported(tmp_path, "file", [ROOT, OLD._replace(access=CLOSED)])
    target = f"embedded:{tmp_path}/target"
    done = metadata("copy", source, target, "--drop-acls")
    assert done.exit_code == 0, done.output
    assert metadata("get", "/a", "--url", target).stdout == "x\n"
