"""Workers that are killed while they read leave nothing behind on the broker."""

import json
import subprocess
import time

import pytest

from anabranch.testing.planted import child_command

READERS = 20
KILLS = 100
pytestmark = pytest.mark.xdist_group("spark")


def open_readers(topics, topic="long"):
    stats = json.loads(topics.ask("GET", f"persistent/public/default/{topic}/stats"))
    return [name for name in stats["subscriptions"] if name.startswith("spark-")]


def forgotten(topics, topic):
    deadline = time.monotonic() + 30
    while open_readers(topics, topic) and time.monotonic() < deadline:
        time.sleep(0.1)
    return open_readers(topics, topic) == []


@pytest.mark.goal("spark.C27", part="readers", broken_by="spark_readers_are_remembered")
def test_the_readers_of_a_killed_worker_are_forgotten(topics):
    # More than a task holds at a time, so that no reader is done when it is killed.
    topics.fill("long", [bytes(100_000)] * 200)

    worker = subprocess.Popen(
        child_command(
            "anabranch.testing.spark_readers",
            topics.server.service_url,
            topics.server.web_url,
            "long",
            str(READERS),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout.readline().startswith("reading")
        assert len(open_readers(topics)) == READERS
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert forgotten(topics, "long")


@pytest.mark.goal("spark.C27", part="hundred kills", broken_by="spark_readers_are_remembered")
def test_after_a_hundred_kills_nothing_is_open(topics):
    topics.fill("brief", [bytes(100_000)] * 50)
    parent = subprocess.Popen(
        child_command(
            "anabranch.testing.spark_readers",
            topics.server.service_url,
            topics.server.web_url,
            "brief",
            "1",
            str(KILLS),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        lines = parent.stdout.read().split()
    assert parent.returncode == 0
    assert lines == ["killed"] * KILLS, "every worker was reading when it was killed"
    assert forgotten(topics, "brief")
