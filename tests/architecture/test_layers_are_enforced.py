"""The contracts in pyproject.toml would be noticed if they were broken."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sysconfig.get_path("scripts")) / "lint-imports"
VIOLATIONS = {
    "a lower layer imports a higher one": ("ledgers/planted_a.py", "anabranch.broker"),
    "pure code takes a clock": ("wire/planted_b.py", "time"),
    "product code opens a socket": ("broker/planted_c.py", "socket"),
    "the client loads server code": ("client/planted_d.py", "anabranch.managed_ledger"),
    "a store is named outside its factory": ("server/planted_e.py", "anabranch.metadata.embedded"),
}
UNPLACED = "planted_folder"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    """What import-linter says of a copy in which every rule is broken at once."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", copy)
    source = copy / "src" / "anabranch"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (source / UNPLACED).mkdir()
    (source / UNPLACED / "__init__.py").touch()
    for file, imported in VIOLATIONS.values():
        (source / file).write_text(f"import {imported}\n")
    done = subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=copy, capture_output=True, text=True, check=False, timeout=100,
        env={"PYTHONPATH": str(copy / "src"), "NO_COLOR": "1", "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_import_is_reported(report: str, violation: str) -> None:
    file, imported = VIOLATIONS[violation]
    importer = "anabranch." + file.removesuffix(".py").replace("/", ".")
    assert f"{importer} -> {imported} (l.1)" in report


def test_folder_without_a_place_is_reported(report: str) -> None:
    assert f"- anabranch.{UNPLACED}" in report
