"""Artifacts are fetched once, checked, and appear whole or not at all."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.errors import FormatError
from anabranch.testing.servers.cache import (
    Artifact,
    cache_folder,
    digest_of_files,
    locate,
    parse_lock,
    pinned,
)
from anabranch.testing.servers.failures import FetchFailed, MissingTool
from anabranch.testing.servers.fetch import fetch, pom_of, run_maven


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tarball() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("tool-1.0/bin/tool")
        entry.mode, entry.size = 0o755, 5
        archive.addfile(entry, io.BytesIO(b"tool\n"))
    return buffer.getvalue()


class FakeMaven:
    """Writes what Maven would have downloaded."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.calls: list[list[str]] = []
        self.lock = threading.Lock()

    def __call__(self, arguments: Sequence[str], folder: Path) -> None:
        with self.lock:
            self.calls.append(list(arguments))
        (target,) = (a.partition("=")[2] for a in arguments if a.startswith("-DoutputDirectory="))
        Path(target).mkdir(exist_ok=True)
        for name, content in self.files.items():
            (Path(target) / name).write_bytes(content)


def tool_artifact(content: bytes) -> Artifact:
    return Artifact("tool", "tarball", ("g:tool:1:tar.gz",), hashlib.sha256(content).hexdigest())


def test_a_tarball_is_unpacked_and_stays_executable() -> None:
    content = tarball()
    maven = FakeMaven({"tool.tar.gz": content})
    folder = fetch(tool_artifact(content), maven=maven)
    assert (folder / "bin" / "tool").read_text() == "tool\n"
    assert (folder / "bin" / "tool").stat().st_mode & 0o100
    assert "-Dartifact=g:tool:1:tar.gz" in maven.calls[0]


def test_jars_are_fetched_through_a_project_file() -> None:
    jars = {"b.jar": b"B", "a.jar": b"A"}
    lines = [f"{name} {hashlib.sha256(jars[name]).hexdigest()}\n" for name in sorted(jars)]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    folder = fetch(Artifact("jars", "classpath", ("g:b:1",), digest), maven=FakeMaven(jars))
    assert sorted(path.name for path in folder.iterdir()) == ["a.jar", "b.jar"]
    assert digest_of_files(folder.iterdir()) == digest


def test_jars_alone_are_fetched_one_by_one_and_checked_together() -> None:
    maven = FakeMaven({"a.jar": b"A"})
    digest = hashlib.sha256(f"a.jar {hashlib.sha256(b'A').hexdigest()}\n".encode()).hexdigest()
    folder = fetch(Artifact("alone", "jars", ("g:a:1", "g:b:2"), digest), maven=maven)
    assert [path.name for path in folder.iterdir()] == ["a.jar"]
    asked = [word for call in maven.calls for word in call if word.startswith("-Dartifact=")]
    assert asked == ["-Dartifact=g:a:1", "-Dartifact=g:b:2"]
    with pytest.raises(FetchFailed, match=r"alone .*pins 0"):
        fetch(Artifact("alone", "jars", ("g:a:1",), "0" * 64), maven=maven)


def test_a_second_fetch_asks_nobody() -> None:
    content = tarball()
    maven = FakeMaven({"tool.tar.gz": content})
    first = fetch(tool_artifact(content), maven=maven)
    assert fetch(tool_artifact(content), maven=maven) == first
    assert len(maven.calls) == 1


def test_fetches_at_the_same_time_fetch_once() -> None:
    content = tarball()
    maven = FakeMaven({"tool.tar.gz": content})
    threads = [
        threading.Thread(target=fetch, args=[tool_artifact(content)], kwargs={"maven": maven})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(maven.calls) == 1
    assert tool_artifact(content).folder.is_dir()


def test_another_content_than_the_pinned_one_is_refused(own_cache: Path) -> None:
    artifact = tool_artifact(b"what was pinned")
    with pytest.raises(FetchFailed, match=f"tool .*pins {artifact.sha256}"):
        fetch(artifact, maven=FakeMaven({"tool.tar.gz": tarball()}))
    assert [path.name for path in own_cache.iterdir()] == ["fetch.lock"]


def test_without_maven_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="install Maven"):
        run_maven([], tmp_path)


def test_an_artifact_not_fetched_names_the_command() -> None:
    with pytest.raises(MissingTool, match=r"pulsar-tools .*make servers"):
        locate("pulsar-tools")


def test_the_project_file_names_each_coordinate() -> None:
    pom = pom_of(["g.one:a:1.0", "g.two:b:2.0"])
    assert "<groupId>g.one</groupId><artifactId>a</artifactId><version>1.0</version>" in pom
    assert pom.count("<dependency>") == 2


def test_the_lock_file_of_this_checkout_is_sound() -> None:
    assert sorted(pinned()) == ["kafka", "oxia", "pulsar-jars", "pulsar-tools", "spark-kafka"]
    assert all(len(artifact.sha256) == 64 for artifact in pinned().values())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('format = "other"\nversion = 1', "other"),
        ('format = "anabranch-servers-lock"\nversion = 2', "2"),
        (
            'format = "anabranch-servers-lock"\nversion = 1\n[[artifact]]\nname = "odd"',
            "'odd' is not fully described",
        ),
    ],
)
def test_a_foreign_lock_file_is_refused(text: str, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        parse_lock(text)


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder().name == "cache"
    monkeypatch.delenv("ANABRANCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/anabranch")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "anabranch"
