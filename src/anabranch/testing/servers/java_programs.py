"""Runs a Java program of one file with the libraries of a Pulsar: its clients, as they are."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.java import find_java

JARS: Final = "pulsar-jars"
"""Those of the newest Pulsar."""
TOOLS: Final = "pulsar-tools"
"""The distribution of 4.0.8, with the clients that its tools use."""
_MARK: Final = "### "


def said_by(program: Path, *words: str, libraries: str = JARS, timeout_s: float = 300) -> list[str]:
    """What a program prints; what the client logs to the same stream is in it too."""
    java = find_java()
    folder = locate(libraries)
    classes = folder / "lib" if libraries == TOOLS else folder
    done = subprocess.run(
        [str(java.program), *java.flags, "-cp", f"{classes}/*", str(program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def named_lines(lines: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The lines that begin like those that are wanted."""
    names = {text.split(" [")[0] for text in wanted}
    return [line for line in lines if line.split(" [")[0] in names]


def marked_lines(lines: Sequence[str]) -> list[str]:
    """The lines that a program marks as its own, without the mark."""
    return [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
