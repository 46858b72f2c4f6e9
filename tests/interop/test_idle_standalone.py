"""A standalone server that has nothing to do yet: how soon it is there and what it takes.

The benchmark `standalone` measures the same on a quiet machine and beside Pulsar. Here the machine
does other things too: time in which the server was ready to run and had no processor is not its.
"""

from pathlib import Path

import pytest

from anabranch.testing.planted import child_command
from anabranch.testing.servers import anabranch_standalone

READY_S_MAX = 2.0
RESIDENT_MIB_MAX = 150
STARTS_MAX = 5


def kept_waiting_s(pid: int) -> float:
    """How long the main thread of a process has waited for a processor; 0 where nobody counts."""
    counters = Path(f"/proc/{pid}/schedstat")
    return int(counters.read_text().split()[1]) / 1e9 if counters.exists() else 0.0


@pytest.mark.goal("core.B21", part="figures", broken_by="start_takes_its_time")
def test_ready_within_two_seconds() -> None:
    with anabranch_standalone(command=child_command("anabranch")) as server:
        taken_s = [server.ready_after_s - kept_waiting_s(server.pid)]
        while min(taken_s) > READY_S_MAX and len(taken_s) < STARTS_MAX:
            server.restart()
            taken_s.append(server.ready_after_s - kept_waiting_s(server.pid))
    assert min(taken_s) <= READY_S_MAX


@pytest.mark.goal("core.B21", part="figures", broken_by="start_takes_ballast")
def test_idle_memory() -> None:
    with anabranch_standalone(command=child_command("anabranch")) as server:
        assert server.resident_bytes() / 2**20 <= RESIDENT_MIB_MAX
