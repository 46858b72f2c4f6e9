"""The Java admin client of Pulsar 5.0.0-M1 sees the same on our server and on Pulsar."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.java_programs import marked_lines, said_by
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).with_name("AdminClient.java")
SEEN = [
    "tenant [standalone]",
    "bundles 4",
    "retention 10",
    "partitions 3",
    "subscriptions [s]",
    "topics 4",
    "ttl 60",
    "applied 5",
    "removed null",
    "stats 0",
    "together 3",
    "internal LedgerOpened",
    "leader true",
    "unknown 404",
    "tenants []",
]


@pytest.fixture(params=["ours", "pulsar"])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    with (anabranch_standalone if request.param == "ours" else pulsar_standalone)() as running:
        yield running


@pytest.mark.goal("core.B16", part="java admin client")
def test_the_java_admin_client_walks_through(server: Standalone) -> None:
    assert marked_lines(said_by(PROGRAM, server.web_url, "acme")) == SEEN
