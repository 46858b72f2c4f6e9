"""Records of long runs, committed with the code: tables that only grow, and whose code they saw."""

import ast
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from anabranch.errors import FormatError
from anabranch.testing.proofs import ROOT, imports_of

_TESTING: Final = "anabranch.testing."
_SPARK: Final = "pyspark_anabranch"


def code_digest(*modules: str, root: Path = ROOT) -> str:
    """A fingerprint of the product, of some modules or packages, and of testing code they use.

    The data source for Spark is part of the product for those that use any of it.
    """
    source = root / "src"
    files = {
        path
        for path in (source / "anabranch").rglob("*.py")
        if not path.is_relative_to(source / "anabranch" / "testing")
    }
    used = _testing_code_of(modules, source)
    if any(_uses_spark(path) for path in used):
        files |= set((source / _SPARK).rglob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files | used):
        digest.update(path.relative_to(source).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _testing_code_of(modules: Iterable[str], source: Path) -> set[Path]:
    """The files of modules, and of all modules of `anabranch.testing` that they import in turn."""
    found: set[Path] = set()
    waiting = [path for name in modules for path in _files_of(name, source, whole=True)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            for name in imports_of(ast.parse(path.read_bytes())):
                if name.startswith(_TESTING):
                    waiting += _files_of(name, source)
    return found


def _uses_spark(path: Path) -> bool:
    names = imports_of(ast.parse(path.read_bytes()))
    return any(name == _SPARK or name.startswith(f"{_SPARK}.") for name in names)


def _files_of(name: str, source: Path, *, whole: bool = False) -> list[Path]:
    """The file of a module, or of a package; none for what is no module of ours."""
    place = source.joinpath(*name.split("."))
    if whole and place.is_dir():
        return sorted(place.rglob("*.py"))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return [path for path in candidates if path.exists()]


def load_rows(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """The rows of a record; none if it does not exist yet.

    Raises:
        FormatError: if the file has other columns.
    """
    if not path.exists():
        return []
    header, *lines = path.read_text().splitlines()
    if header.split("\t") != list(columns):
        raise FormatError(f"{path.name} has the columns {header!r}, not {' '.join(columns)!r}")
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, 2):
        if len(row) != len(columns):
            raise FormatError(f"{path.name} line {number} has {len(row)} fields")
    return rows


def save_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Replace the record at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(row) + "\n" for row in [columns, *rows])
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(text)
    new.replace(path)
