"""Readers, seeks and acknowledgement receipts with the Java client, on our server and on Pulsar."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.java_programs import named_lines, said_by
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("ReadersAndSeeks.java")
BATCH = [f"b{n}" for n in range(10)]
SINGLES = ["s0", "s1", "s2"]


def line(name: str, values: list[str]) -> str:
    return f"{name} [{', '.join(values)}]"


SEEN = [
    line("earliest", BATCH + SINGLES),
    line("latest", []),
    line("latest inclusive", ["s2"]),
    line("in batch", BATCH[7:] + SINGLES),
    line("in batch inclusive", BATCH[6:] + SINGLES),
    line("an hour ago", BATCH + SINGLES),
    "acknowledged with receipts",
    line("seek into batch", BATCH[7:] + SINGLES),
    line("seek to time", ["s2"]),
    line("seek to earliest", BATCH + SINGLES),
    line("after a cumulative receipt", BATCH[5:] + SINGLES),
]


@pytest.fixture(params=["ours", "pulsar"])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    launch = anabranch_standalone if request.param == "ours" else pulsar_standalone
    with launch() as running:
        yield running


@pytest.mark.goal("core.B5", part="start positions")
@pytest.mark.goal("core.B5", part="seek by id")
@pytest.mark.goal("core.B5", part="seek by time")
@pytest.mark.goal("core.B5", part="has-message-available")
@pytest.mark.goal("core.B6", part="ack receipts")
def test_the_java_client_sees_the_same(server: Standalone) -> None:
    said = said_by(PROGRAM, server.service_url, f"java-{time.monotonic_ns()}")
    assert named_lines(said, SEEN) == SEEN
