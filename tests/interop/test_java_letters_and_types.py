"""Retry and dead letters, Failover and Key_Shared with the Java client, on ours and Pulsar."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).with_name("LettersAndTypes.java")
SEEN = [
    "retries [0, 1, 2]",
    "dead letter [bad]",
    "active at first [1]",
    "failover [0, 1, 2, 3, 4, 5, 3, 4, 5] true",
    "keys [300, 20, true, true]",
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
def test_the_java_client_sees_the_same_letters_and_types(server: Standalone) -> None:
    java = find_java()
    done = subprocess.run(
        [
            str(java.program),
            *java.flags,
            *("-cp", f"{locate('pulsar-jars')}/*"),
            str(PROGRAM),
            server.service_url,
            f"java-{time.monotonic_ns()}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    # The client logs to the same stream.
    names = {text.split(" [")[0] for text in SEEN}
    seen = [text for text in done.stdout.splitlines() if text.split(" [")[0] in names]
    assert seen == SEEN, done.stderr
