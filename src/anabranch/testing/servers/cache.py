"""Where fetched artifacts lie, and the lock file that pins them.

An artifact's folder carries the start of its digest in its name and appears by one rename, so a
folder that exists is whole and is the pinned one; looking it up costs one `stat`.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from anabranch.errors import FormatError
from anabranch.testing.servers.failures import MissingTool

LOCK_FILE: Final = Path(__file__).with_name("servers.lock")
LOCK_FORMAT: Final = "anabranch-servers-lock"
LOCK_VERSION: Final = 1
KINDS: Final = ("tarball", "classpath", "jars", "go")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One pinned thing: a tarball of one coordinate, or the jars that several resolve to.

    Or `jars`: those of the coordinates alone, for whoever has the rest already. Or a program built
    from a Go module: its coordinates are the module and the module's sum.
    """

    name: str
    kind: Literal["tarball", "classpath", "jars", "go"]
    coordinates: tuple[str, ...]
    sha256: str

    @property
    def folder(self) -> Path:
        """Where it lies once fetched."""
        return cache_folder() / f"{self.name}-{self.sha256[:16]}"


def cache_folder() -> Path:
    """Return the folder of fetched artifacts: outside the source tree, shared by all checkouts."""
    if own := os.environ.get("ANABRANCH_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "anabranch"
    return Path.home() / ".cache" / "anabranch"


def parse_lock(text: str, *, name: str = LOCK_FILE.name) -> dict[str, Artifact]:
    """Read a lock file's artifacts, by name and in its order.

    Raises:
        FormatError: for another format or version, or an artifact that is not fully described.
    """
    document = tomllib.loads(text)
    found = (document.get("format"), document.get("version"))
    if found != (LOCK_FORMAT, LOCK_VERSION):
        raise FormatError(f"{name} has format {found}, not {(LOCK_FORMAT, LOCK_VERSION)}")
    artifacts: dict[str, Artifact] = {}
    for row in document.get("artifact", []):
        if sorted(row) != ["coordinates", "kind", "name", "sha256"] or row["kind"] not in KINDS:
            raise FormatError(f"{name}: artifact {row.get('name')!r} is not fully described: {row}")
        if row["kind"] == "tarball" and len(row["coordinates"]) != 1:
            raise FormatError(f"{name}: tarball {row['name']!r} must have one coordinate")
        if row["kind"] == "go" and len(row["coordinates"]) != 2:
            raise FormatError(f"{name}: {row['name']!r} must have a Go module and its sum")
        artifacts[row["name"]] = Artifact(
            row["name"], row["kind"], tuple(row["coordinates"]), row["sha256"]
        )
    return artifacts


def pinned() -> dict[str, Artifact]:
    """Return what the lock file of this checkout pins."""
    return parse_lock(LOCK_FILE.read_text())


def locate(name: str) -> Path:
    """Return the folder of a fetched artifact.

    Raises:
        MissingTool: if it was not fetched yet.
    """
    folder = pinned()[name].folder
    if not folder.is_dir():
        raise MissingTool(f"{name} is not in {cache_folder()}: run `make servers` once")
    return folder


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return one SHA-256 over the names and contents of several files, in order of name."""
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.name):
        total.update(f"{path.name} {digest_of_file(path)}\n".encode())
    return total.hexdigest()
