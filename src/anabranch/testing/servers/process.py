"""One child process with a log file: started, waited for, and ended for certain.

Knows nothing of what the process serves; `standalone.py` gives it ports, folders and a probe.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.limits import (
    SERVER_POLL_INTERVAL_S,
    SERVER_READY_S_MAX,
    SERVER_STOP_S_MAX,
    TEST_PORT_MAX,
    TEST_PORT_MIN,
)

LOG_TAIL_LINES: Final = 40
_handed_out: set[int] = set()


def free_port() -> int:
    """Return a loopback port that nobody uses and that this process did not hand out before.

    Ports come from below the range systems give to outgoing connections, so that a server which
    is stopped and started again finds its port still free.
    """
    for _ in range(1000):
        port = SystemRandom().randint(TEST_PORT_MIN, TEST_PORT_MAX)
        if port in _handed_out:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise ServerFailed(f"no free port between {TEST_PORT_MIN} and {TEST_PORT_MAX}")


def bound_to_parent(command: Sequence[str]) -> list[str]:
    """Have the kernel end the child if this process dies without cleaning up, where it can.

    The kernel's signal follows the death of the *thread* that forked, so it is asked for only
    in the main thread, which lives as long as the process.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [setpriv, "--pdeathsig", "KILL", *command]


class ServerProcess:
    """A child process in a process group of its own; its output goes to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._group: int | None = None

    @property
    def pid(self) -> int:
        """The process id of the running, or last run, child."""
        if self._child is None:
            raise ServerFailed(f"{self.name} was never started")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the child was started and has not ended."""
        if self._child is None:
            return False
        if self._child.poll() is None:
            return True
        self._end_group()
        return False

    def start(self, ready: Callable[[], bool], *, timeout_s: float = SERVER_READY_S_MAX) -> float:
        """Start the child and return after how many seconds it was ready.

        Raises:
            ServerFailed: with the end of its log, if it ends by itself or is not ready in time;
                the child is gone then.
        """
        if self.running:
            raise ServerFailed(f"{self.name} runs already as process {self.pid}")
        begun = time.monotonic()
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                bound_to_parent(self.command),
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._group = self._child.pid
        self.wait_ready(ready, timeout_s=timeout_s)
        return time.monotonic() - begun

    def wait_ready(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait until the child answers; it is gone if that fails.

        Raises:
            ServerFailed: with the end of its log, if it ends by itself or is not ready in time.
        """
        try:
            self._wait_ready(ready, time.monotonic() + timeout_s)
        except BaseException:
            self.kill()
            raise

    def _wait_ready(self, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            if not self.running:
                raise ServerFailed(f"{self.name} ended before it was ready; {self.describe_log()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} was not ready in time; {self.describe_log()}")
            time.sleep(SERVER_POLL_INTERVAL_S)
        # Another process on the same port could have answered the probe.
        if not self.running:
            raise ServerFailed(f"{self.name} ended as it became ready; {self.describe_log()}")

    def stop(self, *, timeout_s: float = SERVER_STOP_S_MAX) -> None:
        """Ask the child to end, end it by force after the timeout, and wait until it is gone."""
        if self._child is not None and self.running:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the child and whatever it started, without warning, and wait until it is gone."""
        if self._child is not None:
            self._end_group()
            self._child.wait()

    def _end_group(self) -> None:
        """End the child's process group, once: later its number may belong to somebody else."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)
            self._group = None

    def describe_log(self) -> str:
        """Return where the log is, and its last lines."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"the end of its log {self.log}:", *lines])

    def resident_bytes(self) -> int:
        """Return the resident memory of the child and the processes of its group (Linux)."""
        return sum(_resident_kib(stat.with_name("status")) for stat in self._group_stats()) * 1024

    def cpu_s(self) -> float:
        """Return the CPU seconds, user and system, that the group has used so far (Linux)."""
        ticks = 0
        for stat in self._group_stats():
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def cpu_wait_s(self) -> float:
        """Return the seconds that threads of the group were ready and had no processor (Linux)."""
        waited_ns = 0
        for stat in self._group_stats():
            for thread in stat.parent.glob("task/*/schedstat"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    waited_ns += int(thread.read_text().split()[1])
        return waited_ns / 1e9

    def _group_stats(self) -> list[Path]:
        """The `stat` files of the child and of the processes of its group.

        Raises:
            ServerFailed: if there are none.
        """
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if int(stat.read_text().rpartition(")")[2].split()[2]) == self.pid:
                    found.append(stat)
        if not found:
            raise ServerFailed(f"{self.name} is not running, or this system has no /proc")
        return found


def _resident_kib(status: Path) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0
