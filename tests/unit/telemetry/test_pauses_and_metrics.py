"""The page of figures, and the figures of the loop and the collector."""

import asyncio
import gc
import time

import pytest

from anabranch.runtime.real import RealClock
from anabranch.telemetry.loop_lag import CollectorPauses, LoopLag, WindowedMaximum
from anabranch.telemetry.metrics import Metric, Sample, counter, gauge, render


@pytest.mark.goal("core.B20", part="metrics", broken_by="labels_are_not_escaped")
def test_page_is_in_prometheus_text_format():
    slices = render(
        [
            gauge("lag", "How\nlate.", 0.25),
            Metric("n_total", "counter", "Count.", (Sample(3, {"a": 'x"y\\'}), Sample(4))),
            counter("big_total", "Big.", 12345678901234.0, cluster="c"),
        ],
        lines_max=3,
    )
    assert "".join(slices) == (
        "# HELP lag How\\nlate.\n# TYPE lag gauge\nlag 0.25\n"
        '# HELP n_total Count.\n# TYPE n_total counter\nn_total{a="x\\"y\\\\"} 3\nn_total 4\n'
        '# HELP big_total Big.\n# TYPE big_total counter\nbig_total{cluster="c"} 12345678901234\n'
    )


def test_largest_value_is_seen_for_a_whole_window_and_then_forgotten():
    recent = WindowedMaximum(window_s=10)
    recent.add(100, 5.0)
    recent.add(109, 1.0)
    assert recent.read(109) == 5.0
    recent.add(111, 2.0)
    assert recent.read(120) == 5.0
    assert recent.read(121) == 2.0
    assert recent.read(200) == 0.0


def hold_up(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.goal("core.B30", part="lag", broken_by="lag_is_not_seen")
async def test_loop_that_is_held_up_is_late():
    lag = LoopLag(RealClock())
    lag.start()
    await asyncio.sleep(0)
    hold_up(0.5)
    await asyncio.sleep(0.3)
    lag.stop()
    (metric,) = lag.metrics()
    assert 0.2 < metric.samples[0].value < 5


@pytest.mark.goal("core.B30", part="lag", broken_by="pauses_are_not_seen")
def test_collections_are_counted_and_timed():
    pauses = CollectorPauses(RealClock())
    pauses.start()
    gc.collect()
    pauses.stop()
    gc.collect()
    by_name = {metric.name: metric.samples for metric in pauses.metrics()}
    assert by_name["anabranch_gc_pauses_total"][2].value == 1
    assert by_name["anabranch_gc_pause_seconds_total"][0].value > 0
    assert by_name["anabranch_gc_pause_seconds_max"][0].value > 0
