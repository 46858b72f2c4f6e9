"""Brings the pinned artifacts into the cache, with the ordinary Maven and Go clients.

Each is fetched into a folder of its own beside its destination, checked, and renamed into place;
a file lock lets one process at a time do so, and the others find the result.
"""

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from anabranch.testing.servers import go_build
from anabranch.testing.servers.cache import (
    LOCK_FILE,
    Artifact,
    cache_folder,
    digest_of_file,
    digest_of_files,
)
from anabranch.testing.servers.failures import FetchFailed, MissingTool
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.limits import FETCH_S_MAX

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

RunMaven = Callable[[Sequence[str], Path], None]


def run_maven(arguments: Sequence[str], folder: Path) -> None:
    """Run Maven in a folder, quietly.

    Raises:
        MissingTool: if Maven or Java is not installed.
        FetchFailed: with the end of Maven's output, if it fails.
    """
    program = shutil.which("mvn")
    if program is None:
        raise MissingTool("no mvn in PATH: install Maven 3.8 or newer (Debian: maven)")
    environment = {**os.environ, "JAVA_HOME": str(find_java().home)}
    command = [program, "--batch-mode", "--quiet", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=FETCH_S_MAX,
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"mvn {' '.join(arguments)} took over {FETCH_S_MAX} s") from None
    if done.returncode:
        raise FetchFailed(f"mvn {' '.join(arguments)} failed:\n{done.stdout[-4000:]}")


def pom_of(coordinates: Sequence[str]) -> str:
    """Return a project whose runtime dependencies are the given `group:name:version`s."""
    rows = []
    for coordinate in coordinates:
        group, name, version = (escape(part) for part in coordinate.split(":"))
        rows.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>anabranch</groupId>"
        "<artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(rows)}</dependencies></project>"
    )


def _check(artifact: Artifact, found: str) -> None:
    if found != artifact.sha256:
        raise FetchFailed(
            f"{artifact.name} ({', '.join(artifact.coordinates)}) has digest {found}, but "
            f"{LOCK_FILE.name} pins {artifact.sha256}; if the coordinates were changed on purpose, "
            f"write the new digest there"
        )


def _fetch_tarball(artifact: Artifact, work: Path, maven: RunMaven) -> Path:
    """Fetch, check and unpack; the one folder inside the tarball is the result."""
    (coordinate,) = artifact.coordinates
    maven([f"{PLUGIN}:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={work}"], work)
    files = list(work.iterdir())
    if len(files) != 1:
        raise FetchFailed(f"{coordinate} brought {len(files)} files instead of one")
    _check(artifact, digest_of_file(files[0]))
    inside = work / "unpacked"
    with tarfile.open(files[0]) as archive:
        archive.extractall(inside, filter="data")
    folders = list(inside.iterdir())
    if len(folders) != 1:
        raise FetchFailed(f"{coordinate} holds {len(folders)} folders instead of one")
    return folders[0]


def _fetch_classpath(artifact: Artifact, work: Path, maven: RunMaven) -> Path:
    """Fetch and check every jar the coordinates need at run time."""
    (work / "pom.xml").write_text(pom_of(artifact.coordinates))
    jars = work / "jars"
    maven(
        [f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], work
    )
    _check(artifact, digest_of_files(jars.glob("*.jar")))
    return jars


def _fetch_jars(artifact: Artifact, work: Path, maven: RunMaven) -> Path:
    """Fetch and check the jars of the coordinates, without what they need."""
    jars = work / "jars"
    for coordinate in artifact.coordinates:
        maven([f"{PLUGIN}:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={jars}"], work)
    _check(artifact, digest_of_files(jars.glob("*.jar")))
    return jars


def _bring(artifact: Artifact, work: Path, maven: RunMaven) -> Path:
    match artifact.kind:
        case "tarball":
            return _fetch_tarball(artifact, work, maven)
        case "classpath":
            return _fetch_classpath(artifact, work, maven)
        case "jars":
            return _fetch_jars(artifact, work, maven)
        case "go":
            return go_build.build(artifact, work)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into this cache."""
    with (folder / "fetch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch(
    artifact: Artifact,
    *,
    maven: RunMaven = run_maven,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the artifact's folder, fetching it first if it is not there.

    Raises:
        MissingTool: if Maven, Java or Go is needed and not installed.
        FetchFailed: if it cannot be had, or is not the pinned one; the cache is unchanged.
    """
    if artifact.folder.is_dir():
        return artifact.folder
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _alone(cache_folder()):
        if artifact.folder.is_dir():
            return artifact.folder
        say(f"fetching {artifact.name} ({', '.join(artifact.coordinates)})")
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as work:
            _bring(artifact, Path(work), maven).rename(artifact.folder)
    return artifact.folder
