"""Who gives up room when the entry cache is full."""

import pytest

from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.cache import EntryCache, TopicCache


def fill(topic: TopicCache, count: int, size: int, first: int = 0) -> None:
    for entry_id in range(first, first + count):
        topic.add(Entry(1, entry_id, bytes(size)))


@pytest.mark.goal("core.L10", part="fair between topics", broken_by="cache_evicts_the_smallest")
def test_small_topics_keep_theirs_beside_a_flood() -> None:
    cache = EntryCache(1_000_000)
    small = [cache.topic() for _ in range(20)]
    for topic in small:
        fill(topic, 10, 500)
    before = [topic.bytes_held for topic in small]
    flood = cache.topic()
    fill(flood, 10_000, 1000)
    cache.validate()
    assert [topic.bytes_held for topic in small] == before
    assert cache.bytes_held > 990_000, "the room is used"
    assert flood.read(1, 9_999, 1, 1)
    assert not flood.read(1, 0, 1, 1)


@pytest.mark.goal("core.L10", part="bounded by bytes", broken_by="cache_evicts_the_smallest")
def test_equal_topics_end_up_with_about_equal_shares() -> None:
    cache = EntryCache(1_000_000)
    topics = [cache.topic() for _ in range(8)]
    for round_number in range(500):
        for topic in topics:
            fill(topic, 1, 1000, round_number)
        cache.validate()
    shares = [topic.bytes_held for topic in topics]
    assert min(shares) * 2 > max(shares)


def test_tiny_entries_count_for_more_than_their_payload() -> None:
    cache = EntryCache(100_000)
    topic = cache.topic()
    fill(topic, 10_000, 0)
    assert sum(bool(topic.read(1, n, 1, 1)) for n in range(10_000)) < 500


def test_entry_larger_than_the_cache_is_not_kept() -> None:
    cache = EntryCache(1000)
    topic = cache.topic()
    fill(topic, 1, 2000)
    assert cache.bytes_held == 0
    assert topic.read(1, 0, 1, 1) == []


class CountedPayload(bytes):
    """Bytes that say how many of them are in memory."""

    living = 0

    def __init__(self, _content: bytes) -> None:
        CountedPayload.living += 1

    def __del__(self) -> None:
        CountedPayload.living -= 1


@pytest.mark.goal("core.L10", part="bounded by bytes", broken_by="evicted_entries_stay")
def test_what_was_evicted_is_not_kept_in_memory() -> None:
    cache = EntryCache(100_000)
    topic = cache.topic()
    for entry_id in range(300):
        topic.add(Entry(1, entry_id, CountedPayload(bytes(1000))))
        assert CountedPayload.living * 1000 <= 100_000
    assert CountedPayload.living > 50, "the room is used"
