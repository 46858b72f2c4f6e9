"""`pulsar-perf` of Pulsar 4.0.8, unmodified: it sends to our server, and receives what it sent."""

import time

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_perf

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
MESSAGES = 5000


def send_and_receive(service_url: str) -> None:
    topic = f"persistent://public/default/perf-{time.monotonic_ns()}"
    where = ("-u", service_url, "-m", str(MESSAGES))
    sent = pulsar_perf(["produce", *where, "-r", "100000", "-s", "100", topic], timeout_s=120)
    assert sent.messages >= MESSAGES
    earliest = ("-sp", "Earliest", "-ss", "s")
    received = pulsar_perf(["consume", *where, *earliest, topic], timeout_s=120)
    assert received.messages >= MESSAGES


@pytest.mark.goal("core.B2", part="batching and compression")
def test_pulsar_perf_on_standalone() -> None:
    with anabranch_standalone() as server:
        send_and_receive(server.service_url)
