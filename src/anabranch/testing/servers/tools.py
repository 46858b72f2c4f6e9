"""Apache Pulsar's pulsar-perf and pulsar-admin, as of 4.0.8: the last that were published."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final

from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.failures import ToolFailed
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.perf_output import PerfResult, parse_perf_output
from anabranch.testing.servers.process import bound_to_parent

OUTPUT_TAIL_CHARACTERS: Final = 4000
MEMORY: Final = "-Xmx1g"


def run_tool(name: str, arguments: Sequence[str], *, timeout_s: float) -> str:
    """Run one tool to its end and return what it printed.

    Raises:
        MissingTool: if Java or the tools are missing.
        ToolFailed: with the end of its output, if it fails or takes too long; it is gone then.
    """
    program = locate("pulsar-tools") / "bin" / name
    with tempfile.TemporaryDirectory(prefix=f"anabranch-{name}-") as logs:
        child = subprocess.Popen(
            bound_to_parent([str(program), *arguments]),
            env={
                **os.environ,
                "JAVA_HOME": str(find_java().home),
                "PULSAR_MEM": MEMORY,
                "PULSAR_LOG_DIR": logs,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            raise ToolFailed(
                f"{name} {' '.join(arguments)} took over {timeout_s} s; the end of its output:\n"
                f"{output[-OUTPUT_TAIL_CHARACTERS:]}"
            ) from None
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
    if child.returncode:
        raise ToolFailed(
            f"{name} {' '.join(arguments)} ended with {child.returncode}; the end of its output:\n"
            f"{output[-OUTPUT_TAIL_CHARACTERS:]}"
        )
    return output


def pulsar_perf(arguments: Sequence[str], *, timeout_s: float) -> PerfResult:
    """Run `pulsar-perf` and return its figures.

    It prints a figure every 10 s: a run of less than about 12 s has a count and latencies only.
    """
    output = run_tool("pulsar-perf", arguments, timeout_s=timeout_s)
    try:
        return parse_perf_output(output)
    except ValueError as error:
        raise ToolFailed(f"{error}:\n{output[-OUTPUT_TAIL_CHARACTERS:]}") from None


def pulsar_admin(arguments: Sequence[str], *, web_url: str, timeout_s: float = 60) -> str:
    """Run `pulsar-admin` against a server and return what it printed."""
    return run_tool("pulsar-admin", ["--admin-url", web_url, *arguments], timeout_s=timeout_s)
