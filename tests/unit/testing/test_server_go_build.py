"""A program from Go sources is built only from what is pinned."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.testing.servers import go_build
from anabranch.testing.servers.cache import Artifact, pinned
from anabranch.testing.servers.failures import FetchFailed, MissingTool

LOOP = "\tvar deletes []*proto.DeleteRequest\n\tfor range x {\n\t\tkeep()\n\t}\n"


@pytest.fixture
def oxia() -> Artifact:
    return pinned()["oxia"]


class FakeGo:
    """Has the module in a read-only folder, and compiles by writing a file."""

    def __init__(self, cache: Path, module_sum: str) -> None:
        self.module = cache / "module"
        self.module_sum = module_sum
        changed = self.module / go_build.CHANGED_FILE
        changed.parent.mkdir(parents=True)
        changed.write_text(f"before\n{LOOP}after\n")
        changed.chmod(0o444)

    def __call__(self, arguments: Sequence[str], folder: Path) -> str:
        if arguments[0] == "mod":
            return json.dumps({"Sum": self.module_sum, "Dir": str(self.module)})
        own = (folder / "oxiad" / go_build.CHANGED_FILE).read_text()
        assert own == f"before\n{go_build.CHANGED_TO}after\n"
        Path(arguments[arguments.index("-o") + 1]).write_text("program")
        return ""


def test_the_pinned_module_is_changed_and_compiled(
    oxia: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_build, "_run_go", FakeGo(tmp_path / "cache", oxia.coordinates[1]))
    work = tmp_path / "work"
    work.mkdir()
    assert (go_build.build(oxia, work) / "oxia-server").read_text() == "program"


def test_another_module_than_the_pinned_one_is_refused(
    oxia: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go_build, "_run_go", FakeGo(tmp_path / "cache", "h1:other"))
    with pytest.raises(FetchFailed, match="h1:other"):
        go_build.build(oxia, tmp_path)


def test_own_sources_that_changed_must_be_pinned_again(oxia: Artifact, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="write the new digest there"):
        go_build.build(replace(oxia, sha256="0" * 64), tmp_path)


def test_without_go_it_says_what_to_install(
    oxia: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="install Go"):
        go_build.build(oxia, tmp_path)
