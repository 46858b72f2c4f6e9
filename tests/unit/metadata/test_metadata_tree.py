"""The tree's own promises: counted versions, one revision per change, frozen views."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.metadata.entries import Entry
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import ANY, Delete, Operation, Put, Revision, Stat, Version
from anabranch.metadata.tree import Tree

PATHS = st.lists(st.sampled_from("ab-"), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p))
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Put, PATHS, st.binary(max_size=3)), st.builds(Delete, PATHS)
)


def applied(tree: Tree, *operations: Operation) -> list[object]:
    outcomes = tree.apply(operations, epoch=1, wall_ms=5).outcomes
    tree.validate()
    return list(outcomes)


def contents(tree: Tree) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    after: str | None = None
    while page := tree.page("/", after):
        found.update(page)
        after = page[-1][0]
    return found


def test_versions_count_as_in_zookeeper_and_tell_lives_apart() -> None:
    tree = Tree()
    stats = applied(tree, *(Put("/a", b"") for _ in range(3)))
    assert [s.version for s in stats if isinstance(s, Stat)] == [
        Version(0, 0, 1),
        Version(0, 1, 1),
        Version(0, 2, 1),
    ]
    _, again = applied(tree, Delete("/a"), Put("/a", b""))
    assert isinstance(again, Stat)
    assert again.version == Version(0, 0, 2)


def test_every_change_has_a_revision_of_its_own() -> None:
    tree = Tree()
    events = tree.apply(
        [Put("/a/b", b""), Put("/a", b"x"), Delete("/a"), Delete("/a/b")], epoch=3, wall_ms=0
    ).events
    assert [event.revision for event in events] == [Revision(3, i) for i in (1, 2, 3, 4)]
    assert tree.revision == Revision(3, 4)
    with pytest.raises(AssertionError, match="never go back"):
        tree.apply([Put("/a", b"")], epoch=2, wall_ms=0)


@given(st.lists(OPERATIONS, max_size=30))
def test_same_commands_give_the_same_tree(operations: list[Operation]) -> None:
    at_once, one_by_one = Tree(), Tree()
    at_once.apply(operations, epoch=1, wall_ms=7)
    for operation in operations:
        one_by_one.apply([operation], epoch=1, wall_ms=7)
    at_once.validate()
    assert contents(at_once) == contents(one_by_one)
    assert at_once.counters == one_by_one.counters


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METADATA_PAGE_NODES_MAX", 2)


@pytest.mark.usefixtures("tiny_pages")
def test_pages_are_bounded_and_complete() -> None:
    tree = Tree()
    applied(tree, *(Put(path, b"") for path in ("/a/b/c", "/a-b", "/b", "/a/d")))
    assert [[path for path, _ in tree.page("/a", after)] for after in (None, "/a/b", "/a/d")] == [
        ["/a", "/a/b"],
        ["/a/b/c", "/a/d"],
        [],
    ]
    assert len(contents(tree)) == len(tree) == 7


@pytest.mark.usefixtures("tiny_pages")
def test_page_resumes_after_nodes_that_are_gone() -> None:
    tree = Tree()
    applied(tree, Put("/a/b/c", b""), Put("/a/c", b""), Put("/b", b""))
    applied(tree, Delete("/a/b/c"), Delete("/a/b"))
    assert [path for path, _ in tree.page("/", "/a/b/c")] == ["/a/c", "/b"]
    applied(tree, Delete("/a/c"), Delete("/a"))
    assert [path for path, _ in tree.page("/", "/a/b/c")] == ["/b"]


def test_page_is_bounded_by_bytes() -> None:
    tree = Tree()
    applied(tree, *(Put(f"/{i}", b"x" * limits.METADATA_VALUE_BYTES_MAX) for i in range(5)))
    assert len(tree.page("/", None)) == 2  # the empty root and one large value


@settings(max_examples=200)
@given(
    before=st.lists(OPERATIONS, max_size=25),
    during=st.lists(st.lists(OPERATIONS, max_size=4), max_size=15),
)
def test_view_stays_as_it_was_while_the_tree_changes(
    before: list[Operation], during: list[list[Operation]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "METADATA_PAGE_NODES_MAX", 2)
        tree = Tree()
        tree.apply(before, epoch=1, wall_ms=1)
        expected = contents(tree)
        view = tree.freeze()
        seen: list[tuple[str, Entry]] = []
        rounds = iter(during)
        while page := view.next_page():
            seen += page
            tree.apply(next(rounds, []), epoch=1, wall_ms=2)
        tree.release(view)
        assert seen == sorted(expected.items(), key=lambda item: order_key(item[0]))
        assert view.next_page() == []
        tree.validate()


def test_loading_gives_the_same_tree() -> None:
    tree = Tree()
    applied(tree, Put("/a/b", b"1"), Put("/", b"root"), Put("/a/b", b"2", ANY), Put("/c", b""))
    copy = Tree(tree.counters)
    for path, entry in contents(tree).items():
        copy.load(path, entry)
    copy.validate()
    assert contents(copy) == contents(tree)
    assert copy.counters == tree.counters
