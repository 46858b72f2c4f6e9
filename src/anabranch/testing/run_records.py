"""Records of long runs, committed with the code: tables that only grow, and whose code they saw."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from anabranch.errors import FormatError

ROOT: Final = Path(__file__).parents[3]
_SIMULATED_WORLD: Final = ("testing/simulation/", "testing/scenarios/")


def code_digest(root: Path = ROOT) -> str:
    """A fingerprint of the product and of the world it is simulated in, not of other tests."""
    source = root / "src" / "anabranch"
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if not name.startswith("testing/") or name.startswith(_SIMULATED_WORLD):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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
