"""What Spark itself says when a job fails, as one line: its own errors are pages of two stacks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JError,
    Py4JJavaError,
)
from pyspark.errors import PySparkException

from anabranch.errors import AnabranchError

_TRACEBACK: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*: .+")
_STOPPED: Final = "Cannot call methods on a stopped SparkContext"
_CALLED: Final = re.compile(r"An error occurred while calling .*")


class SparkFailed(AnabranchError):
    """Spark could not be started, or ended a job; it says why."""


@contextmanager
def failures_of_spark() -> Iterator[None]:
    """Raise `SparkFailed` for any error of Spark itself.

    Raises:
        SparkFailed: with one line.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark: {one_line(_said(error))}") from error


def _said(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception)  # without its stack
    return str(error)


def one_line(said: str) -> str:
    """The line that names the cause: of a Python worker's traceback the last, else the first."""
    if _STOPPED in said:
        return "it was stopped while it worked: nobody answers at its master, or Java ended"
    lines = [line.strip().removeprefix(": ") for line in said.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if _TRACEBACK in line:
            raised = [each for each in lines[number + 1 :] if _RAISED.match(each)]
            if raised:
                return raised[0]
    told = [line for line in lines if not _CALLED.match(line)] or lines
    return told[0] if told else "no reason was given"
