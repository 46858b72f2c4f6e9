"""A copy of a store that follows its changes, and finds what is not the same."""

import tempfile
from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch.errors import AlreadyClosed, ConflictError, Fenced, OutcomeUnknown, Unreachable
from anabranch.metadata.announced import journal_path
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import (
    Event,
    EventKind,
    IndexKey,
    MetadataStore,
    Operation,
    Outcome,
    Record,
)
from anabranch.migrations.freeze_copy.tail import End, Tail, Wishes
from anabranch.runtime.real import real_runtime
from anabranch.testing.pass_through import PassThrough


class Two:
    """A store and its copy."""

    def __init__(self) -> None:
        clock = real_runtime().clock
        self.source, self.target = MemoryStore(clock), MemoryStore(clock)

    def tail(self) -> Tail:
        return self.tail_to(self.target)

    def tail_to(self, target: MetadataStore) -> Tail:
        ends = End("memory:a", self.source), End("memory:b", target)
        return Tail(real_runtime(), *ends, Wishes())


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    two = Two()
    yield two
    await two.source.close()
    await two.target.close()


def silent(nodes: int, size_bytes: int) -> None:
    """For tests that do not ask how far it is."""


async def tree(store: MetadataStore) -> dict[str, tuple[bytes, int, int, tuple[IndexKey, ...]]]:
    return {
        record.path: (record.value, record.native_version, record.next_sequence, record.indexes)
        async for record in store.export("/")
        if record.session is None and not record.path.startswith("/anabranch/migrations")
    }


@pytest.mark.goal("trap.U10", part="own documents", broken_by="journal_is_copied")
async def test_everything_is_the_same_but_the_operations_own_documents(two: Two) -> None:
    source = two.source
    await source.put("/anabranch/features", b"1")
    await source.put(journal_path("metadata"), b"ours")
    await source.put("/a/b/c", b"deep")
    await source.put("/a/b", b"x", indexes=(IndexKey("i", "k"),))
    await source.put("/a/n-", b"", sequential=True)
    await source.put("/session", b"", ephemeral=True)
    tail = two.tail()
    await tail.copy(silent)
    await source.put("/a/b", b"y")
    await source.put("/a/b", b"z", indexes=(IndexKey("i", "l"),))
    gone = await source.put("/a/n-", b"", sequential=True)
    await source.delete(gone.path)
    await source.put("/new/child", b"1")
    await source.delete("/a/b/c")
    assert await tail.catch_up() > 0
    await tail.verify()
    assert await tail.catch_up() == 0
    await tail.verify_touched()
    assert await tree(two.target) == await tree(source)
    assert not await two.target.exists(journal_path("metadata"))
    assert not await two.target.exists("/session")
    following = await two.target.put("/a/n-", b"", sequential=True)
    assert following.path > gone.path


@pytest.mark.goal("454.A24", part="before the freeze", broken_by="copy_is_not_verified")
@pytest.mark.goal("trap.U7", part="copy", broken_by="copy_is_not_verified")
async def test_node_that_is_not_what_was_copied_is_named(two: Two) -> None:
    for number in range(20):
        await two.source.put(f"/a/{number}", b"right")
    tail = two.tail()
    await tail.copy(silent)
    await two.target.put("/a/7", b"wrong")
    with pytest.raises(ConflictError, match="/a/7 "):
        await tail.verify()


@pytest.mark.goal("454.A25", part="leftovers", broken_by="deletes_are_not_followed")
@pytest.mark.goal("trap.U6", part="leftovers", broken_by="deletes_are_not_followed")
async def test_what_an_earlier_attempt_left_is_gone(two: Two) -> None:
    await two.source.put("/kept/a", b"1")
    await two.source.put("/deleted/a", b"1")
    await two.tail().copy(silent)
    await two.source.delete("/deleted/a")
    await two.source.delete("/deleted")
    await two.source.put("/kept/a", b"2")
    await two.source.put("/later", b"3")
    again = two.tail()
    await again.copy(silent)
    await again.verify()
    assert await tree(two.target) == await tree(two.source)


async def test_the_folder_above_the_operations_own_documents_is_copied_too(two: Two) -> None:
    await two.source.put("/anabranch", b"for all of us")
    await two.source.put("/anabranch/n-", b"", sequential=True)
    await two.target.put("/anabranch/migrations/reserved", b"ours")
    tail = two.tail()
    await tail.copy(silent)
    await tail.verify()
    left, right = await two.source.record("/anabranch"), await two.target.record("/anabranch")
    assert left is not None
    assert right is not None
    assert (right.value, right.next_sequence) == (b"for all of us", left.next_sequence)


async def test_what_was_looked_at_again_is_compared_again_only_if_it_changes(two: Two) -> None:
    await two.source.put("/a", b"1")
    tail = two.tail()
    await tail.copy(silent)
    await tail.verify()
    await two.source.put("/a", b"2")
    await tail.catch_up()
    await tail.look_again()
    await two.target.put("/a", b"spoiled")
    await tail.verify_touched()
    await two.source.put("/b", b"3")
    await tail.catch_up()
    await two.target.put("/b", b"spoiled")
    await tail.look_again()
    with pytest.raises(ConflictError, match="/b is not the same"):
        await tail.verify_touched()


async def test_a_driver_that_was_replaced_writes_no_more(two: Two) -> None:
    left = 3

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Fenced("another one drives")

    for number in range(5):
        await two.source.put(f"/a/{number}", b"1")
    ends = End("memory:a", two.source), End("memory:b", two.target)
    tail = Tail(real_runtime(), *ends, Wishes(), check)
    with pytest.raises(Fenced):
        await tail.copy(silent)
    assert not await two.target.exists("/a/4")
    left = 100
    await tail.copy(silent)
    before = await tree(two.target)
    for number in range(5):
        await two.source.put(f"/a/{number}", b"2")
    await two.source.put("/a", b"parent")
    await two.source.put("/a/n-", b"", sequential=True)
    left = 0
    with pytest.raises(Fenced):
        await tail.catch_up()
    assert await tree(two.target) == before


async def test_write_that_came_late_to_the_copy_is_named(two: Two) -> None:
    for number in range(5):
        await two.source.put(f"/a/{number}", b"right")
    tail = two.tail()
    await tail.copy(silent)
    await tail.verify()
    await tail.look_again()
    # Of a driver that was replaced, or of a process that was left behind.
    await two.target.put("/a/3", b"late")
    await tail.catch_up()
    with pytest.raises(ConflictError, match="/a/3 is not the same"):
        await tail.verify_touched()


async def test_comparison_that_met_an_error_compares_the_same_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.source.put("/a", b"1")
    tail = two.tail()
    await tail.copy(silent)
    await tail.verify()
    await two.source.put("/a", b"2")
    await tail.catch_up()
    await two.target.put("/a", b"spoiled")

    async def gone(*_: object) -> None:
        raise Unreachable("for a moment")

    for compare in (tail.look_again, tail.verify_touched):
        monkeypatch.setattr(two.target, "record", gone)
        with pytest.raises(Unreachable):
            await compare()
        monkeypatch.undo()
    with pytest.raises(ConflictError, match="/a is not the same"):
        await tail.verify_touched()


async def test_copy_that_was_not_told_of_changes_is_compared_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.source.put("/a", b"1")
    tail = two.tail()
    await tail.copy(silent)
    await tail.verify()
    assert tail.compared

    async def forgotten(*_: object) -> AsyncIterator[Event]:
        yield Event(EventKind.GAP, "/", await two.target.revision())

    monkeypatch.setattr(two.target, "changed_since", forgotten)
    await tail.catch_up()
    assert not tail.compared
    with pytest.raises(ConflictError, match="did not tell all"):
        await tail.verify_touched()
    monkeypatch.undo()
    await tail.verify()
    assert tail.compared
    await tail.verify_touched()


def test_a_copy_sorts_where_temporary_files_belong() -> None:
    assert Wishes().sorting_folder == tempfile.gettempdir()


async def test_what_only_counts_otherwise_is_looked_at_together(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oxia counts a node with children that was written over in its own way: each one differs."""
    for number in range(30):
        await two.source.put(f"/topics/{number}/cursor", b"1")
    ends = End("memory:a", two.source), End("oxia://o:1/n", two.target)
    tail = Tail(real_runtime(), *ends, Wishes())
    await tail.copy(silent)
    for number in range(30):
        for value in (b"1", b"2", b"3"):
            await two.source.put(f"/topics/{number}", value)
    await tail.catch_up()
    looks = 0
    plain = tail.catch_up

    async def counted(*, hurries: bool) -> int:
        nonlocal looks
        looks += 1
        return await plain(hurries=hurries)

    monkeypatch.setattr(tail, "catch_up", counted)
    await tail.verify()
    assert tail.compared
    assert looks <= 2


class Forgetful(PassThrough):
    """Every tenth read is not answered."""

    reads = 0

    async def record(self, path: str) -> Record | None:
        self.reads += 1
        if self.reads % 10 == 0:
            raise Unreachable("the connection broke before the answer")
        return await super().record(path)


async def test_lost_answers_do_not_keep_a_copy_from_its_end(two: Two) -> None:
    for number in range(300):
        await two.source.put(f"/a/{number}", b"1")
    ends = End("memory:a", Forgetful(two.source)), End("memory:b", Forgetful(two.target))
    tail = Tail(real_runtime(), *ends, Wishes())
    await tail.copy(silent)
    await tail.verify()
    for number in range(300):
        await two.source.put(f"/a/{number}", b"2")
    assert await tail.catch_up() == 300
    await tail.verify_touched()
    assert await tree(two.target) == await tree(two.source)


class Vague(PassThrough):
    """Does what it is asked to, and says so never."""

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        await super().batch(operations)
        raise OutcomeUnknown("the connection broke before the answer")


async def test_nothing_stays_of_numbers_that_were_passed_over(two: Two) -> None:
    opened: list[MetadataStore] = []

    async def again() -> MetadataStore:
        handle = await two.target.handle()
        opened.append(handle if opened else Vague(handle))
        return opened[-1]

    ends = End("memory:a", two.source), End("memory:b", two.target, again)
    tail = Tail(real_runtime(), *ends, Wishes())
    await two.source.put("/a/first", b"")
    await tail.copy(silent)
    for _ in range(3):
        stat = await two.source.put("/a/n-", b"", sequential=True)
        await two.source.delete(stat.path)
    with pytest.raises(OutcomeUnknown):
        await tail.catch_up()
    assert await two.target.children("/a") == ["first"], "they went with their session"
    # The next driver does not know of them at all.
    again_tail = Tail(real_runtime(), *ends, Wishes())
    await again_tail.copy(silent)
    assert await tree(two.target) == await tree(two.source)
    for handle in opened:
        with pytest.raises(AlreadyClosed):
            await handle.get("/a")


class ServedLate(PassThrough):
    """Serves the first restore only when the second one comes: nobody waits for it any more."""

    def __init__(self, behind: MetadataStore) -> None:
        super().__init__(behind)
        self._late: list[Record] | None = None
        self._served = False

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        if self._late is None:
            self._late = [record async for record in records]
            raise OutcomeUnknown("the answer did not come")
        if not self._served:
            self._served = True
            await super().restore(each(self._late))
        return await super().restore(records)


async def each(records: list[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


async def test_what_was_asked_for_before_and_comes_late_is_no_conflict(two: Two) -> None:
    await two.source.put("/a", b"1")
    tail = two.tail()
    await tail.copy(silent)
    late = two.tail_to(ServedLate(two.target))
    await late.copy(silent)
    await two.source.put("/b", b"1")
    with pytest.raises(OutcomeUnknown):
        await late.catch_up()
    with pytest.raises(Unreachable, match="/b exists already") as caught:
        await late.catch_up()
    assert caught.value.retriable
    await late.catch_up()
    await late.verify()
    assert await tree(two.target) == await tree(two.source)
