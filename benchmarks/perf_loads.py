"""The loads that pulsar-perf puts on a server: publishing and draining, and what each cost.

Rates come from pulsar-perf's interval lines: for publishing the median of those after the first,
for draining the best one, since a drain may end in the middle of one. CPU is what the servers
named have used, user and system, per million messages; the generator's is not counted. How long
their threads were ready and had no processor tells a server that waits from a busy machine.
"""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Final, Protocol

from anabranch.testing.servers import PerfResult, ToolFailed, pulsar_client, pulsar_perf
from benchmarks.options import Options
from benchmarks.report import Figure, Measure, SideRun

LOADS: Final = {"batched": (), "unbatched": ("-db", "-o", "1000"), "steady": ()}
"""The loads and what each adds to pulsar-perf's options; 1,000 are sends without receipt.

A steady load is not drained: it is for latencies, which mean nothing at the highest rate.
"""
MESSAGE_BYTES: Final = 1024
STEADY_RATE: Final = 5_000
RATE_MAX: Final = 10_000_000
TOOL_SPARE_S: Final = 90
"""What pulsar-perf may take beyond the load itself: JVM start, and its last 10 s tick."""
SUBSCRIPTION: Final = "drain"


def _costs(key: str, title: str) -> tuple[Measure, Measure]:
    return (
        Measure(f"{key}_cpu", title, "CPU s per million", False),
        Measure(f"{key}_waited", title, "s without a CPU per s", False),
    )


def _rates(load: str) -> tuple[Measure, ...]:
    return (
        Measure(f"publish_{load}", f"publish {load}", "msg/s", True),
        *_costs(f"publish_{load}", f"publish {load}"),
        Measure(f"drain_{load}", f"drain {load}", "msg/s", True),
        *_costs(f"drain_{load}", f"drain {load}"),
    )


def _latencies(load: str, title: str) -> tuple[Measure, ...]:
    shares = {"p50": "p50", "p99": "p99", "p999": "p99.9"}
    return tuple(
        Measure(f"{key}_{load}", f"{title} {share}", "ms", False) for key, share in shares.items()
    )


_STEADY: Final = f"publish at {STEADY_RATE:,}/s"
MEASURES: Final = (
    *_rates("batched"),
    *_rates("unbatched"),
    *_latencies("unbatched", "publish unbatched"),
    *_latencies("steady", _STEADY),
    *_costs("publish_steady", _STEADY),
)


class Loaded(Protocol):
    """A server, or a broker with what it stands on, that a load is put on."""

    @property
    def service_url(self) -> str:
        """What clients connect to."""
        ...

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far by what is measured."""
        ...

    def cpu_wait_s(self) -> float:
        """Return the seconds that its threads were ready so far and had no processor."""
        ...


def _perf(server: Loaded, action: str, options: Options, *arguments: str) -> PerfResult:
    target = ("-u", server.service_url, "-time", str(options.seconds), *arguments)
    result = pulsar_perf([action, *target], timeout_s=2 * options.seconds + TOOL_SPARE_S)
    if not result.intervals:
        raise ToolFailed(
            f"pulsar-perf {action} printed no rate within {options.seconds} s: give more --seconds"
        )
    return result


def _rate_of_drain(result: PerfResult, available: int) -> Figure:
    best = max(result.intervals, key=lambda interval: interval.messages_per_s)
    return Figure(best.messages_per_s, at_least=best.messages_so_far >= available)


def _perf_with_costs(
    server: Loaded, action: str, key: str, options: Options, run: SideRun, *arguments: str
) -> PerfResult:
    cpu_s, waited_s, begun_s = server.cpu_s(), server.cpu_wait_s(), time.monotonic()
    result = _perf(server, action, options, *arguments)
    used_s = server.cpu_s() - cpu_s
    run.figures[f"{key}_cpu"] = Figure(used_s / max(1, result.messages) * 1e6)
    taken_s = time.monotonic() - begun_s
    run.figures[f"{key}_waited"] = Figure((server.cpu_wait_s() - waited_s) / taken_s)
    return result


def _publish(server: Loaded, load: str, topic: str, options: Options, run: SideRun) -> PerfResult:
    rate = STEADY_RATE if load == "steady" else RATE_MAX
    size = ("-r", str(rate), "-s", str(MESSAGE_BYTES))
    published = _perf_with_costs(
        server, "produce", f"publish_{load}", options, run, *size, *LOADS[load], topic
    )
    if any(interval.failures_per_s for interval in published.intervals):
        run.remarks.append(f"some {load} sends failed")
    # At the highest rate without a bound, latency is that of the generator's own queue.
    if published.latency is not None and load != "batched":
        run.figures[f"p50_{load}"] = Figure(published.latency.p50_ms)
        run.figures[f"p99_{load}"] = Figure(published.latency.p99_ms)
        run.figures[f"p999_{load}"] = Figure(published.latency.p999_ms)
    return published


def _measure_load(server: Loaded, load: str, options: Options, run: SideRun) -> None:
    """Fill one topic, then drain it."""
    topic = f"persistent://public/default/{load}"
    with pulsar_client(server.service_url) as client:
        # Without a subscription the server may trim what nobody is going to read.
        client.subscribe(topic, SUBSCRIPTION).close()
    run.load_averages.append(os.getloadavg()[0])
    published = _publish(server, load, topic, options, run)
    if load == "steady":
        return
    run.figures[f"publish_{load}"] = Figure(median(i.messages_per_s for i in published.warm))
    earliest = ("-sp", "Earliest", "-ss", SUBSCRIPTION, topic)
    drained = _perf_with_costs(server, "consume", f"drain_{load}", options, run, *earliest)
    run.figures[f"drain_{load}"] = _rate_of_drain(drained, published.messages)


def measure_loads(
    server: Loaded, options: Options, run: SideRun, say: Callable[[str], None]
) -> None:
    """Put the chosen loads on a server, one after the other."""
    for load in options.loads:
        say(f"{run.side}: {load}")
        _measure_load(server, load, options, run)
