"""What was written and read in an interval, by values; where the time comes from is pretended."""

import pytest

from anabranch.managed_ledger.storage_figures import NOTHING, StorageFigures


class Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.mark.parametrize(
    ("taken_s", "bucket"),
    [(0.0, 0), (0.0005, 0), (0.0006, 1), (0.03, 5), (0.9, 8), (1.5, 9)],
)
def test_an_entry_is_in_one_bucket_by_how_long_it_took(taken_s: float, bucket: int) -> None:
    watch = Watch()
    watch.now_s = 0.0
    figures = StorageFigures(watch)
    watch.now_s = taken_s
    figures.wrote(10, 0.0)
    figures.measure(1.0)
    assert figures.shown.latencies == tuple(int(place == bucket) for place in range(10))
    assert figures.shown.latency_sum_s == taken_s


@pytest.mark.parametrize(
    ("size", "bucket"),
    [(0, 0), (128, 0), (129, 1), (2048, 3), (2049, 4), (1_048_576, 7), (1_048_577, 8)],
)
def test_an_entry_is_in_one_bucket_by_its_size(size: int, bucket: int) -> None:
    figures = StorageFigures(Watch())
    figures.wrote(size, 100.0)
    figures.measure(1.0)
    assert figures.shown.sizes == tuple(int(place == bucket) for place in range(9))
    assert figures.shown.size_sum_bytes == size


def test_an_interval_has_only_what_happened_in_it() -> None:
    figures = StorageFigures(Watch())
    for _ in range(30):
        figures.wrote(200, 100.0)
    figures.reads += 90
    assert figures.shown == NOTHING, "the interval is not over"
    figures.measure(60.0)
    assert (figures.shown.writes_per_s, figures.shown.reads_per_s) == (0.5, 1.5)
    figures.reads += 60
    figures.measure(60.0)
    assert figures.shown == NOTHING._replace(reads_per_s=1.0)
    figures.measure(60.0)
    assert figures.shown is NOTHING
