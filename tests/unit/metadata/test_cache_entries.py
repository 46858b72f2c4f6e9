"""The dictionary that forgets: bounded in number and bytes."""

from anabranch.metadata.cache_entries import BoundedEntries, Entry


def entry(value: str, size_bytes: int = 10) -> Entry[str]:
    return Entry(value, None, size_bytes, 0.0)


def test_the_one_used_longest_ago_goes_first() -> None:
    entries: BoundedEntries[str] = BoundedEntries(entries_max=2, bytes_max=1000)
    entries.keep("a", entry("a"))
    entries.keep("b", entry("b"))
    assert entries.get("a") == entry("a")
    entries.keep("c", entry("c"))
    assert entries.peek("b") is None
    assert [entries.peek(name) is not None for name in "ac"] == [True, True]
    assert (len(entries), entries.bytes_held) == (2, 20)


def test_a_look_does_not_count_as_use() -> None:
    entries: BoundedEntries[str] = BoundedEntries(entries_max=2, bytes_max=1000)
    for name in "ab":
        entries.keep(name, entry(name))
    entries.peek("a")
    entries.keep("c", entry("c"))
    assert entries.peek("a") is None


def test_bytes_are_bounded() -> None:
    entries: BoundedEntries[str] = BoundedEntries(entries_max=100, bytes_max=100)
    for number in range(20):
        entries.keep(str(number), entry("x", 30))
        assert entries.bytes_held <= 100
    assert len(entries) == 3
    entries.keep("large", entry("x", 101))
    assert entries.peek("large") is None
    assert len(entries) == 3, "what can never fit drives nobody out"
    entries.keep("19", entry("x", 101))
    assert entries.peek("19") is None, "and an older state is not kept in its place"


def test_replacing_and_dropping_keep_count() -> None:
    entries: BoundedEntries[str] = BoundedEntries(entries_max=100, bytes_max=100)
    entries.keep("a", entry("x", 40))
    entries.keep("a", entry("y", 50))
    assert entries.bytes_held == 50
    entries.drop("a")
    entries.drop("a")
    assert (len(entries), entries.bytes_held) == (0, 0)
    entries.keep("b", entry("x", 40))
    entries.clear()
    assert (len(entries), entries.bytes_held) == (0, 0)
