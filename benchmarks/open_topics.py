"""Memory of a standalone server with 10,000 topics open.

Each has a producer, a consumer and one message that nobody has acknowledged; all stay connected
while memory is read.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import pulsar

from anabranch.testing.servers import (
    Standalone,
    anabranch_standalone,
    pulsar_client,
    pulsar_standalone,
)
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun

TOPICS: Final = 10_000
AT_ONCE: Final = 32
"""Topics being opened at any moment."""

SIDES: Final[dict[str, Callable[[], AbstractContextManager[Standalone]]]] = {
    "anabranch": anabranch_standalone,
    "pulsar": lambda: pulsar_standalone(memory=("-Xms2g", "-Xmx2g")),
}
MEASURES: Final = (
    Measure("idle", "memory before", "MiB", False),
    Measure("open", f"memory with {TOPICS:,} topics", "MiB", False),
    Measure("each", "memory per topic", "KiB", False),
    Measure("opening", "opened after", "s", False),
)


def _open_one(client: pulsar.Client, number: int) -> tuple[pulsar.Consumer, pulsar.Producer]:
    topic = f"persistent://public/default/open-{number:05}"
    consumer = client.subscribe(topic, "waiting", receiver_queue_size=1)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"x" * 100)
    return consumer, producer


def measure(side: str, _options: Options, say: Callable[[str], None]) -> SideRun:
    """Open all topics on a fresh server."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    with SIDES[side]() as server, pulsar_client(server.service_url) as client:
        before = server.resident_bytes()
        say(f"{side}: opening {TOPICS:,} topics")
        started = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            still_open = list(threads.map(partial(_open_one, client), range(TOPICS)))
        run.figures["opening"] = Figure(time.monotonic() - started)
        time.sleep(2)
        after = server.resident_bytes()
        run.figures["idle"] = Figure(before / 2**20)
        run.figures["open"] = Figure(after / 2**20)
        run.figures["each"] = Figure((after - before) / len(still_open) / 2**10)
    return run


def run(options: Options) -> None:
    run_pairs("open_topics", MEASURES, measure, options)
