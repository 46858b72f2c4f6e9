"""The collector of cycles is slowed down for copies, and for nobody else."""

import gc
from collections.abc import Iterator

import pytest

from anabranch.metadata.transfer.few_collections import few_collections


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_all_is_as_before_when_the_last_copy_is_done() -> None:
    first, second = few_collections(), few_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > 700
    assert gc.get_threshold()[1:] == (10, 10)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


def test_all_is_as_before_when_a_copy_fails() -> None:
    with pytest.raises(OSError, match="disk"), few_collections():
        raise OSError("disk")
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [0, 10**6])
def test_a_collector_that_searches_less_still_is_left_alone(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 10)
    with few_collections():
        assert gc.get_threshold() == (threshold, 10, 10)
    assert gc.get_threshold() == (threshold, 10, 10)
