"""What the doctor looks at: each probe returns one finding and leaves the machine as it was."""

import enum
import importlib.util
import os
import platform
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.errors import FormatError
from anabranch.limits import MIB
from anabranch.server.data_folder import IDENTITY_FILE, read_identity
from anabranch.server.settings import Settings

PYTHON_MIN: Final = (3, 11)
_PROBE_BYTES: Final = b"\0" * 4096
SYNCS: Final = 20
SYNC_S_MAX: Final = 0.02
"""Half of the syncs may take longer before the disk is called slow."""
FREE_BYTES_MIN: Final = 1024 * MIB
OPEN_FILES_MIN: Final = 4096
CLOCK_DRIFT_S_MAX: Final = 0.5
"""How far the wall clock may jump while the doctor looks."""


class State(enum.Enum):
    """How a thing is."""

    GOOD = "good"
    OPTIONAL = "missing, not needed"
    WEAK = "weak"
    """The server runs, worse than it could."""
    BAD = "bad"
    """The server cannot run like this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    detail: str
    fix: str = ""

    def as_json(self) -> dict[str, str]:
        """For machines."""
        return {
            "name": self.name,
            "state": self.state.name.lower(),
            "detail": self.detail,
            "fix": self.fix,
        }


def python() -> Finding:
    """Whether this Python is new enough."""
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info >= PYTHON_MIN:
        return Finding("python", State.GOOD, detail)
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding("python", State.BAD, detail, f"install Python {wanted} or newer")


def uvloop() -> Finding:
    """Whether the fast event loop is there."""
    if importlib.util.find_spec("uvloop") is not None:
        return Finding("event loop", State.GOOD, "uvloop")
    return Finding("event loop", State.WEAK, "asyncio's own, slower", "pip install uvloop")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there already."""
    path = folder.absolute()
    while not path.exists():
        path = path.parent
    return path


def disk(folder: Path) -> Finding:
    """How long a sync takes where the data will be."""
    place = _existing(folder)
    taken_s = []
    try:
        with tempfile.NamedTemporaryFile(prefix=".anabranch-doctor-", dir=place) as file:
            for _ in range(SYNCS):
                file.write(_PROBE_BYTES)
                file.flush()
                began_s = time.perf_counter()
                os.fsync(file.fileno())
                taken_s.append(time.perf_counter() - began_s)
    except OSError as error:
        detail = f"{place} cannot be written: {error.strerror or error}"
        return Finding("data folder", State.BAD, detail, "choose another folder with --data")
    median_s = statistics.median(taken_s)
    detail = f"{place}: a sync takes {median_s * 1000:.2f} ms, at worst {max(taken_s) * 1000:.2f}"
    if median_s > SYNC_S_MAX:
        fix = "every acknowledgement waits for a sync: put --data on a faster disk"
        return Finding("data folder", State.WEAK, detail, fix)
    return Finding("data folder", State.GOOD, detail)


def identity(folder: Path) -> Finding:
    """Whether what is in the data folder is ours and of a format this build knows."""
    file = folder / IDENTITY_FILE
    try:
        names = sorted(os.listdir(folder))
        content = file.read_bytes() if IDENTITY_FILE in names else None
    except FileNotFoundError:
        return Finding("stored data", State.GOOD, "none yet")
    except OSError as error:
        detail = f"{folder} cannot be read: {error.strerror or error}"
        return Finding("stored data", State.BAD, detail, "choose another folder with --data")
    if content is None:
        if not names:
            return Finding("stored data", State.GOOD, "none yet")
        detail = f"{folder} is somebody else's: it holds {names[0]!r}"
        return Finding("stored data", State.BAD, detail, "choose another folder with --data")
    try:
        cluster_id = read_identity(str(file), content)
    except FormatError as error:
        fix = "start the build that wrote it, or choose another folder with --data"
        return Finding("stored data", State.BAD, str(error), fix)
    return Finding("stored data", State.GOOD, f"of cluster {cluster_id}")


def space(folder: Path) -> Finding:
    """How much room there is."""
    place = _existing(folder)
    free = shutil.disk_usage(place).free
    detail = f"{free / MIB / 1024:.1f} GiB free at {place}"
    if free < FREE_BYTES_MIN:
        fix = f"free {FREE_BYTES_MIN // MIB} MiB: a full disk ends the server"
        return Finding("free space", State.WEAK, detail, fix)
    return Finding("free space", State.GOOD, detail)


def open_files() -> Finding:
    """How many connections and files a process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{'any number' if soft == resource.RLIM_INFINITY else soft} per process"
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN:
        fix = "each connection needs one: ulimit -n 65536"
        return Finding("open files", State.WEAK, detail, fix)
    return Finding("open files", State.GOOD, detail)


def ports(settings: Settings) -> list[Finding]:
    """Whether the server could listen where the settings say."""
    wanted = (("port", "--port", settings.port), ("web port", "--web-port", settings.web_port))
    return [_port(name, flag, settings.host, port) for name, flag, port in wanted]


def _port(name: str, flag: str, host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return Finding(name, State.GOOD, f"{host}:{port} is free" if port else "any free one")
    except OSError as error:
        fix = f"stop what listens there (a server that runs already?), or choose another {flag}"
        return Finding(name, State.BAD, f"{host}:{port}: {error.strerror or error}", fix)


def clock(folder: Path) -> Finding:
    """Whether the wall clock goes on as time does, and is not before the stored data."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(0.05)
    drift_s = abs((time.time() - wall_s) - (time.monotonic() - steady_s))
    if drift_s > CLOCK_DRIFT_S_MAX:
        detail = f"the wall clock jumped by {drift_s:.1f} s just now"
        return Finding("clock", State.WEAK, detail, "let a time service set it gradually")
    file = folder / IDENTITY_FILE
    if file.exists() and file.stat().st_mtime > wall_s + CLOCK_DRIFT_S_MAX:
        detail = f"the wall clock is before the time {file} was written"
        return Finding("clock", State.WEAK, detail, "set the clock: publish times will be wrong")
    return Finding("clock", State.GOOD, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s)))


def java() -> Finding:
    """Which Java the comparisons with real servers would use."""
    from anabranch.testing.servers.failures import MissingTool
    from anabranch.testing.servers.java import find_java

    try:
        found = find_java()
    except MissingTool as error:
        return Finding("java", State.OPTIONAL, "no Java that is new enough", str(error))
    return Finding("java", State.GOOD, f"{found.major} at {found.program}")


def peers() -> Finding:
    """Whether the real servers for comparisons are here."""
    from anabranch.testing.servers.cache import pinned

    missing = [artifact.name for artifact in pinned().values() if not artifact.folder.is_dir()]
    if missing:
        detail = f"not fetched: {', '.join(missing)}"
        return Finding("peer servers", State.OPTIONAL, detail, "make servers, in a checkout")
    return Finding("peer servers", State.GOOD, "all fetched")


def program(name: str, purpose: str) -> Finding:
    """Whether an optional program is there."""
    found = shutil.which(name)
    if found is None:
        return Finding(name, State.OPTIONAL, "not found", f"{purpose}; nothing else does")
    return Finding(name, State.GOOD, found)
