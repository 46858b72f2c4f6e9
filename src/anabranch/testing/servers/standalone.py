"""A server that is whole in one process: its ports, its folder, its life.

What is started, and how it is configured, is said by `pulsar.py` and `ours.py`.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from anabranch.testing.servers.limits import SERVER_PROBE_S_MAX, SERVER_READY_S_MAX
from anabranch.testing.servers.process import ServerProcess, free_port


@dataclass(frozen=True, slots=True)
class Place:
    """What a server is given: a folder of its own and two ports."""

    folder: Path
    port: int
    web_port: int

    @property
    def data(self) -> Path:
        """Where it keeps what must outlive a restart."""
        return self.folder / "data"


class Standalone:
    """A running server: addresses, process, and the ways to end it and start it again."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        place: Place,
        *,
        environment: Mapping[str, str] | None = None,
        ready_timeout_s: float = SERVER_READY_S_MAX,
    ) -> None:
        self.name = name
        self.place = place
        self.log = place.folder / f"{name}.log"
        self.ready_after_s = 0.0
        """How long the last start took until the health check answered."""
        self._ready_timeout_s = ready_timeout_s
        self._process = ServerProcess(
            name, command, folder=place.folder, log=self.log, environment=environment
        )

    @property
    def service_url(self) -> str:
        """What clients connect to."""
        return f"pulsar://127.0.0.1:{self.place.port}"

    @property
    def web_url(self) -> str:
        """What administrators connect to."""
        return f"http://127.0.0.1:{self.place.web_port}"

    @property
    def data(self) -> Path:
        """The data folder; kept over `restart`."""
        return self.place.data

    @property
    def pid(self) -> int:
        """The process id of the running, or last run, server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.running

    def start(self) -> None:
        """Start the server on its ports and data and wait until it is healthy."""
        self.ready_after_s = self._process.start(self.healthy, timeout_s=self._ready_timeout_s)

    def stop(self) -> None:
        """End the server cleanly; by force if that takes too long."""
        self._process.stop()

    def kill(self) -> None:
        """End the server as kill -9 does."""
        self._process.kill()

    def kill_while_starting(self, after_s: float) -> None:
        """Start the server and end it as kill -9 does after so long, ready or not."""
        moment = time.monotonic() + after_s
        self._process.start(lambda: time.monotonic() >= moment)
        self._process.kill()

    def restart(self) -> None:
        """End the server cleanly, if it runs, and start it again on the same ports and data."""
        self.stop()
        self.start()

    def resident_bytes(self) -> int:
        """Return the memory that the server's processes occupy now."""
        return self._process.resident_bytes()

    def cpu_s(self) -> float:
        """Return the CPU seconds that the server's processes have used so far."""
        return self._process.cpu_s()

    def cpu_wait_s(self) -> float:
        """Return the seconds that the server's threads were ready and had no processor."""
        return self._process.cpu_wait_s()

    def healthy(self) -> bool:
        """Whether the health check answers 200."""
        return healthy(self.place.web_port)


def healthy(web_port: int) -> bool:
    """Whether the health check of a broker on loopback answers 200."""
    connection = HTTPConnection("127.0.0.1", web_port, timeout=SERVER_PROBE_S_MAX)
    try:
        connection.request("GET", "/admin/v2/brokers/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextmanager
def started(
    name: str, build: Callable[[Place], Standalone], folder: Path | None
) -> Iterator[Standalone]:
    """Start what `build` describes, end it at the end, and tidy up.

    A folder that the caller gives is the caller's to keep. Without one a temporary folder is
    made; it is removed afterwards, except that a failure leaves the logs and says where.
    """
    own = folder is None
    root = Path(tempfile.mkdtemp(prefix=f"anabranch-{name}-")) if folder is None else folder
    place = Place(root, free_port(), free_port())
    log: Path | None = None
    try:
        place.data.mkdir(parents=True, exist_ok=True)
        server = build(place)
        log = server.log
        try:
            server.start()
            yield server
        finally:
            server.stop()
    except BaseException:
        if own:
            shutil.rmtree(root if log is None else place.data)
        if log is not None:
            print(f"the log of {name} is kept: {log}", file=sys.stderr)
        raise
    if own:
        shutil.rmtree(root)
