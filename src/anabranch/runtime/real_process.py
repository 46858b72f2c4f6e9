"""What the operating system says about this very process; not every system says everything."""

import os
import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process has taken, as of now."""

    cpu_s: float
    resident_bytes: int | None
    """None where it is not told."""
    open_files: int | None
    open_files_max: int


def process_usage() -> ProcessUsage:
    """Ask the operating system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUsage(
        cpu_s=used.ru_utime + used.ru_stime,
        resident_bytes=_resident_bytes(),
        open_files=_open_files(),
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def _open_files() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None
