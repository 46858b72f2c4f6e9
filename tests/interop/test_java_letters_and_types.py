"""Letters, subscription types, patterns, schemas with the Java client, on ours and Pulsar."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.java_programs import named_lines, said_by
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("LettersAndTypes.java")
SEEN = [
    "retries [0, 1, 2]",
    "dead letter [bad]",
    "active at first [1]",
    "failover [0, 1, 2, 3, 4, 5, 3, 4, 5] true",
    "keys [300, 20, true, true]",
    "watched [a, b]",
    "schemas [bool=true, int8=true, int16=true, int32=true, int64=true, float=true, double=true, "
    "instant=true, date=true, pair=true]",
    "transactions [off]",
]


@pytest.fixture(params=["ours", "pulsar"])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    launch = anabranch_standalone if request.param == "ours" else pulsar_standalone
    with launch() as running:
        yield running


@pytest.mark.goal("core.B4", part="failover")
@pytest.mark.goal("core.B4", part="key_shared")
@pytest.mark.goal("core.B6", part="retry letters")
@pytest.mark.goal("core.B6", part="dead letters")
@pytest.mark.goal("core.B8", part="watchers")
@pytest.mark.goal("core.B10", part="all types")
@pytest.mark.goal("core.B1", part="not served")
def test_the_java_client_sees_the_same_letters_and_types(server: Standalone) -> None:
    said = said_by(PROGRAM, server.service_url, f"java-{time.monotonic_ns()}")
    assert named_lines(said, SEEN) == SEEN
