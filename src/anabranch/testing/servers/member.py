"""One server of a cluster that tests run: a child process with a probe, and all ways to hurt it.

What is started is said by the launchers beside this module; `group` keeps several together.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anabranch.testing.servers.limits import SERVER_PROBE_S_MAX, SERVER_READY_S_MAX
from anabranch.testing.servers.process import ServerProcess


def port_answers(port: int) -> bool:
    """Whether somebody listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(SERVER_PROBE_S_MAX)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Member:
    """A server process that can be stopped, killed, paused and started again on its data."""

    def __init__(
        self, name: str, command: Sequence[str], *, folder: Path, ready: Callable[[], bool]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.ready_after_s = 0.0
        """How long the last start took."""
        self._ready = ready
        self._launched_s = 0.0
        self._process = ServerProcess(name, command, folder=folder, log=self.log)

    @property
    def pid(self) -> int:
        """The process id of the running, or last run, server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.running

    def launch(self) -> None:
        """Start the process without waiting for it; some servers need each other to get ready."""
        self._launched_s = time.monotonic()
        self._process.start(lambda: True)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.ready_after_s = self._process.start(self._ready, timeout_s=SERVER_READY_S_MAX)

    def wait_ready(self) -> None:
        """Wait until a launched server answers.

        Raises:
            ServerFailed: if it ends, or does not answer in time.
        """
        self._process.wait_ready(self._ready, timeout_s=SERVER_READY_S_MAX)
        self.ready_after_s = time.monotonic() - self._launched_s

    def stop(self) -> None:
        """End the server cleanly; by force if that takes too long."""
        self.resume()
        self._process.stop()

    def kill(self) -> None:
        """End the server as kill -9 does."""
        self._process.kill()

    def pause(self) -> None:
        """Let the process stand still, as a machine under load or a long collection does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    def resident_bytes(self) -> int:
        """Return the memory that the server's processes occupy now."""
        return self._process.resident_bytes()

    def cpu_s(self) -> float:
        """Return the CPU seconds that the server's processes have used so far."""
        return self._process.cpu_s()

    def cpu_wait_s(self) -> float:
        """Return the seconds that the server's threads were ready and had no processor."""
        return self._process.cpu_wait_s()


@contextmanager
def group(name: str, folder: Path | None, build: Callable[[Path], list[Member]]) -> Iterator[None]:
    """Start the members that `build` makes in a folder; end all of them, last one first.

    A folder that the caller gives is the caller's to keep; otherwise a temporary one is removed,
    except for the logs after a failure.
    """
    own = folder is None
    root = Path(tempfile.mkdtemp(prefix=f"anabranch-{name}-")) if folder is None else folder
    members: list[Member] = []
    try:
        try:
            members += build(root)
            for member in members:
                member.launch()
            for member in members:
                member.wait_ready()
            yield
        finally:
            for member in reversed(members):
                member.stop()
    except BaseException:
        for member in members:
            print(f"the log of {member.name} is kept: {member.log}", file=sys.stderr)
        if own:
            _remove_all_but_logs(root, [member.log for member in members])
        raise
    if own:
        shutil.rmtree(root)


def _remove_all_but_logs(root: Path, logs: Sequence[Path]) -> None:
    for path in sorted(root.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                path.rmdir()
        elif path not in logs:
            path.unlink()
