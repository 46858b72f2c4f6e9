"""Entry ranges compared with a set of numbers, the entry cache with a list per topic."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.cache import EntryCache
from anabranch.managed_ledger.entry_ranges import EntryRanges

runs = st.tuples(st.integers(0, 40), st.integers(0, 8))


@given(st.lists(st.tuples(st.booleans(), runs), max_size=40))
def test_ranges_are_a_set(steps: list[tuple[bool, tuple[int, int]]]) -> None:
    ranges = EntryRanges()
    model: set[int] = set()
    for adds, (first, length) in steps:
        if adds:
            new = set(range(first, first + length + 1))
            assert ranges.add(first, first + length) == len(new - model)
            model |= new
        else:
            gone = {n for n in model if n <= first}
            assert ranges.drop_through(first) == len(gone)
            model -= gone
        ranges.validate()
        assert ranges.count() == len(model)
        assert {n for n in range(60) if n in ranges} == model
        for number in sorted(model):
            end = ranges.end_of(number)
            assert end in model
            assert end + 1 not in model


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 400), st.sampled_from("aaaaaard")),
        max_size=120,
    )
)
def test_cache_holds_the_newest_of_each_topic_within_its_bound(
    steps: list[tuple[int, int, str]],
) -> None:
    cache = EntryCache(4000)
    topics = [cache.topic() for _ in range(4)]
    written: list[list[Entry]] = [[] for _ in topics]
    ledger_ids = [1] * 4
    for which, size, action in steps:
        topic = topics[which]
        if action == "a":
            last = written[which][-1] if written[which] else None
            same = last is not None and last.ledger_id == ledger_ids[which]
            entry_id = last.entry_id + 1 if last is not None and same else 0
            entry = Entry(ledger_ids[which], entry_id, bytes(size))
            written[which].append(entry)
            topic.add(entry)
        elif action == "r":
            ledger_ids[which] += 1
        else:
            topic.drop_ledgers_below(ledger_ids[which])
            written[which] = [e for e in written[which] if e.ledger_id >= ledger_ids[which]]
        cache.validate()
        for part, entries in zip(topics, written, strict=True):
            held = [bool(part.read(e.ledger_id, e.entry_id, 1, 1)) for e in entries]
            assert held == sorted(held), "what is held is the newest part"
            if part.bytes_held * 2 < max(other.bytes_held for other in topics):
                continue
            for entry in entries[-3:]:
                for found in part.read(entry.ledger_id, entry.entry_id, 5, 300):
                    assert found in entries
    for topic in topics:
        topic.clear()
    assert cache.bytes_held == 0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.data())
def test_read_fits_both_limits(sizes: list[int], data: st.DataObject) -> None:
    cache = EntryCache(1 << 20)
    topic = cache.topic()
    entries = [Entry(7, n, bytes(size)) for n, size in enumerate(sizes)]
    for entry in entries:
        topic.add(entry)
    evicted = data.draw(st.integers(0, len(sizes) - 1))
    for _ in range(evicted):
        cache.bytes_max = cache.bytes_held - 1
        cache.resized(topic, 0)
    kept = entries[len(entries) - sum(bool(topic.read(7, e.entry_id, 1, 1)) for e in entries) :]
    start = data.draw(st.sampled_from(kept))
    max_entries, max_bytes = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 200))
    expected: list[Entry] = []
    for entry in entries[start.entry_id :]:
        total = sum(len(e.payload) for e in [*expected, entry])
        if len(expected) == max_entries or (expected and total > max_bytes):
            break
        expected.append(entry)
    assert topic.read(7, start.entry_id, max_entries, max_bytes) == expected
