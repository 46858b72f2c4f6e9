"""pulsar-perf's printed lines become figures."""

import pytest

from anabranch.testing.servers import Interval, Latency, parse_perf_output

PREFIX = "2026-11-15T21:13:26,333+0000 [main] INFO  org.apache.pulsar.testclient.Performance"

PRODUCED = f"""\
{PREFIX}Producer - Created 1 producers
{PREFIX}Producer - Throughput produced:  398649 msg ---  39841.5 msg/s ---    311.3 Mbit/s  \
--- failure      0.0 msg/s --- Latency: mean: 816.224 ms - med: 766.911 - 95pct: 2023.967 \
- 99pct: 2219.551 - 99.9pct: 2254.719 - 99.99pct: 2256.591 - Max: 2256.719
{PREFIX}Producer - Throughput produced: 1223548 msg ---  71553.3 msg/s ---    559.0 Mbit/s  \
--- failure      2.5 msg/s --- Latency: mean: 3650.144 ms - med: 3752.719 - 95pct: 5173.919 \
- 99pct: 5249.023 - 99.9pct: 5282.815 - 99.99pct: 5282.975 - Max: 5283.007
{PREFIX}Producer - ------------- DONE (reached the maximum duration: [23 seconds]) ---------
{PREFIX}Producer - Aggregated throughput stats --- 1778890 records sent --- 55029.249 msg/s \
--- 429.916 Mbit/s
{PREFIX}Producer - Aggregated latency stats --- Latency: mean:   3.913 ms - med:   3.304 \
- 95pct:   6.443 - 99pct:  29.450 - 99.9pct:  50.490 - 99.99pct:  53.696 - 99.999pct:  53.696 \
- Max:  53.696
"""

RECEIVED = f"""\
{PREFIX}Consumer - Throughput received: 1468992 msg --- 146867.460  msg/s --- 1147.402 Mbit/s  \
--- Latency: mean: 31400.309 ms - med: 31724 - 95pct: 34768 - 99pct: 35330 - 99.9pct: 35411 \
- 99.99pct: 35427 - Max: 35457
{PREFIX}Consumer - Throughput received: 1778890 msg --- 30790.235  msg/s --- 240.549 Mbit/s  \
--- Latency: mean: 26629.848 ms - med: 27035 - 95pct: 27862 - 99pct: 27875 - 99.9pct: 27883 \
- 99.99pct: 27883 - Max: 27883
{PREFIX}Consumer - Aggregated throughput stats --- 1778890 records received --- 59084.086 msg/s \
--- 461.594 Mbit/s --- AckRate: 59084.085910266636  msg/s --- ack failed 0 msg
{PREFIX}Consumer - Aggregated latency stats --- Latency: mean: 30569.254 ms - med: 31038 \
- 95pct: 34652 - 99pct: 35233 - 99.9pct: 35409 - 99.99pct: 35426 - 99.999pct: 35457 - Max: 35457
"""


def test_a_producer_run() -> None:
    result = parse_perf_output(PRODUCED)
    assert [i.messages_so_far for i in result.intervals] == [398649, 1223548]
    assert [i.messages_per_s for i in result.intervals] == [39841.5, 71553.3]
    assert [i.failures_per_s for i in result.intervals] == [0.0, 2.5]
    assert result.messages == 1778890
    assert result.latency == Latency(3.913, 3.304, 6.443, 29.450, 50.490, 53.696)


def test_a_consumer_run() -> None:
    result = parse_perf_output(RECEIVED)
    assert [i.messages_per_s for i in result.intervals] == [146867.460, 30790.235]
    assert result.messages == 1778890
    assert result.latency is not None
    assert result.latency.max_ms == 35457


def test_megabytes_agree_with_the_message_size() -> None:
    # Both runs had messages of 1,024 bytes; the printed Mbit/s has three decimals.
    for interval in parse_perf_output(RECEIVED).intervals:
        assert interval.megabytes_per_s == pytest.approx(
            interval.messages_per_s * 1024 / 1e6, abs=0.001
        )


def test_the_first_interval_is_warm_up_unless_it_is_the_only_one() -> None:
    result = parse_perf_output(PRODUCED)
    assert result.warm == result.intervals[1:]
    lines = PRODUCED.splitlines()
    alone = parse_perf_output("\n".join([lines[1], *lines[3:]]))
    assert alone.warm == (Interval(398649, 39841.5, 311.3 * 2**20 / 8e6, 0.0),)


def test_a_short_run_has_a_count_but_no_interval() -> None:
    result = parse_perf_output("\n".join(PRODUCED.splitlines()[-2:]))
    assert result.intervals == result.warm == ()
    assert result.messages == 1778890


def test_a_run_that_did_not_end_by_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="no totals"):
        parse_perf_output("\n".join(PRODUCED.splitlines()[:3]))
