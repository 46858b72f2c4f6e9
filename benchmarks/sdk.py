"""Our SDK beside the client from the package index, both against a standalone server of ours.

One client process publishes messages as fast as it gets receipts, then another drains them and
acknowledges each. The server is the same program on both sides, fresh for every run.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from anabranch.client import Batching, Client
from anabranch.testing.servers import ToolFailed, anabranch_standalone
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun

SIDES: Final = ("sdk", "stock")
LOADS: Final = ("batched", "unbatched")
MESSAGE_BYTES: Final = 1024
PENDING_MESSAGES: Final = 5000
MESSAGES_PER_S_GUESS: Final = {"batched": 12_000, "unbatched": 4_000}
"""For how many messages a run of so many seconds is begun."""
PROCESS_SPARE_S: Final = 120
TOPIC: Final = "persistent://public/default/{load}"
SUBSCRIPTION: Final = "drain"

MEASURES: Final = tuple(
    Measure(f"{action}_{load}", f"{action} {load}", "msg/s", True)
    for load in LOADS
    for action in ("publish", "drain")
)


async def _sdk_publish(url: str, load: str, count: int) -> float:
    async with Client(url) as client:
        producer = await client.producer(
            TOPIC.format(load=load),
            batching=Batching() if load == "batched" else None,
            pending_messages_max=PENDING_MESSAGES,
        )
        value = bytes(MESSAGE_BYTES)
        await producer.send(value)
        started = time.perf_counter()
        for _ in range(count):
            answer = await producer.send_soon(value)
        await producer.flush()
        await answer
        return count / (time.perf_counter() - started)


async def _sdk_drain(url: str, load: str, count: int) -> float:
    async with Client(url) as client:
        consumer = await client.consumer(TOPIC.format(load=load), SUBSCRIPTION)
        await consumer.acknowledge(await consumer.receive())
        started = time.perf_counter()
        for _ in range(count):
            await consumer.acknowledge(await consumer.receive())
        return count / (time.perf_counter() - started)


def _stock_publish(url: str, load: str, count: int) -> float:
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    producer = client.create_producer(
        TOPIC.format(load=load),
        batching_enabled=load == "batched",
        batching_max_publish_delay_ms=1,
        max_pending_messages=PENDING_MESSAGES,
        block_if_queue_full=True,
    )
    value = bytes(MESSAGE_BYTES)
    producer.send(value)
    answered = 0
    done = threading.Event()

    def receipt(result: pulsar.Result, _: object) -> None:
        nonlocal answered
        if result != pulsar.Result.Ok:
            raise SystemExit(f"a send failed: {result}")
        answered += 1
        if answered == count:
            done.set()

    started = time.perf_counter()
    for _ in range(count):
        producer.send_async(value, receipt)
    producer.flush()
    done.wait()
    rate = count / (time.perf_counter() - started)
    client.close()
    return rate


def _stock_drain(url: str, load: str, count: int) -> float:
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    consumer = client.subscribe(TOPIC.format(load=load), SUBSCRIPTION)
    consumer.acknowledge(consumer.receive())
    started = time.perf_counter()
    for _ in range(count):
        consumer.acknowledge(consumer.receive())
    rate = count / (time.perf_counter() - started)
    client.close()
    return rate


def _act(side: str, action: str, url: str, load: str, count: int) -> float:
    """What a client process does; returns messages per second."""
    if side == "stock":
        return (_stock_publish if action == "publish" else _stock_drain)(url, load, count)
    work = _sdk_publish if action == "publish" else _sdk_drain
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work(url, load, count))


def _in_a_process(side: str, action: str, url: str, load: str, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.sdk", side, action, url, load, str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROCESS_SPARE_S
    )
    if done.returncode:
        raise ToolFailed(f"{side} {action} {load} failed: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


async def _subscribe(url: str, load: str) -> None:
    # Without a subscription the server may trim what nobody is going to read.
    async with Client(url) as client:
        await client.consumer(TOPIC.format(load=load), SUBSCRIPTION)


def measure(side: str, options: Options, say: Callable[[str], None]) -> SideRun:
    """Run one side once on a fresh server."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    with anabranch_standalone() as server:
        for load in options.loads:
            count = MESSAGES_PER_S_GUESS[load] * options.seconds // 2
            asyncio.run(_subscribe(server.service_url, load))
            for action in ("publish", "drain"):
                say(f"{side}: {action} {load}")
                rate = _in_a_process(side, action, server.service_url, load, count)
                run.figures[f"{action}_{load}"] = Figure(rate)
    return run


def run(options: Options) -> None:
    own = Options(options.pairs, options.seconds, SIDES, options.loads, False)
    run_pairs("sdk", MEASURES, measure, own)


if __name__ == "__main__":
    print(_act(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
