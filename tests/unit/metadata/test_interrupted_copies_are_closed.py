"""A copy that fails leaves no node open to everybody, or says that it does and what closes it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import InputError, OutcomeUnknown, Unreachable
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.catching_up import CatchingUp
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.model_stores import modelled_zookeeper

OWN = (AccessRight(31, "digest", "owner:abc="),)
TREE = [Record(path, b"v", 0, 0, 0, access=OWN) for path in ("/a", "/a/b", "/a/c", "/a/d")]
OPEN = (*OWN, AccessRight(31, "world", "anyone"))


class Cut(StoreSource):
    """Fails before the last record, once the copy writes; its outlines can fail, too."""

    def __init__(self, store: MemoryStore, error: BaseException) -> None:
        super().__init__(store, "source:", "/", Keeping(access=True))
        self.error: BaseException | None = error
        self.outlines_fail = False
        self._looks = 0

    def records(self) -> AsyncIterator[Record]:
        self._looks += 1
        return each(TREE) if self._looks == 1 or self.error is None else self._cut()

    async def _cut(self) -> AsyncIterator[Record]:
        for record in TREE[:-1]:
            yield record
        assert self.error is not None
        raise self.error

    def outlines(self) -> AsyncIterator[Record]:
        return self._cut() if self.outlines_fail else each(TREE)


@pytest.fixture
async def target(request: pytest.FixtureRequest) -> AsyncIterator[ZooKeeperStore]:
    async with modelled_zookeeper("closed") as url:
        store = await ZooKeeperStore.open(real_runtime(), url)
        yield store
        await store.close()


def copy_of(source: Cut, target: ZooKeeperStore, folder: Path, checkpoint: str = "") -> Copy:
    options = CopyOptions(
        version_map=f"{folder}/map", nodes_per_s=1000.0, span_nodes=1, checkpoint=checkpoint
    )
    keeping = keeping_of("zk:localhost")
    return Copy(real_runtime(), source, target, "target:", keeping, options)


async def rights_in(target: ZooKeeperStore) -> dict[str, tuple[AccessRight, ...]]:
    return {record.path: record.access async for record in target.export() if record.path != "/"}


@pytest.mark.parametrize(
    "error",
    [Unreachable("gone"), InputError("wrong"), ValueError("odd"), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_copy_that_fails_closes_what_it_made(
    target: ZooKeeperStore, tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        await copy_of(Cut(MemoryStore(real_runtime().clock), error), target, tmp_path).run()
    assert await rights_in(target) == {"/a": OWN, "/a/b": OWN, "/a/c": OWN}


async def test_nodes_of_others_keep_their_rights(target: ZooKeeperStore, tmp_path: Path) -> None:
    source = Cut(MemoryStore(real_runtime().clock), Unreachable("gone"))
    real, spans = target.restore_alone, list[int]()

    async def restore_alone(records: AsyncIterator[Record]) -> int:
        spans.append(await real(records))
        if len(spans) == 1:
            await target.put("/a/d", b"of somebody else")
        return spans[-1]

    target.restore_alone = restore_alone  # type: ignore[method-assign]
    with pytest.raises(Unreachable, match="gone"):
        await copy_of(source, target, tmp_path).run()
    assert await rights_in(target) == {"/a": OWN, "/a/b": OWN, "/a/c": OWN, "/a/d": ()}


async def test_copy_that_cannot_close_says_so(target: ZooKeeperStore, tmp_path: Path) -> None:
    source = Cut(MemoryStore(real_runtime().clock), Unreachable("gone"))
    source.outlines_fail = True
    with pytest.raises(Unreachable, match=r"gone; nodes at and below / .* open to everybody"):
        await copy_of(source, target, tmp_path).run()


async def test_copy_with_a_checkpoint_stays_open_says_so_and_goes_on(
    target: ZooKeeperStore, tmp_path: Path
) -> None:
    source = Cut(MemoryStore(real_runtime().clock), Unreachable("gone"))
    checkpoint = f"{tmp_path}/checkpoint"
    with pytest.raises(Unreachable, match=r"open to everybody.*same checkpoint"):
        await copy_of(source, target, tmp_path, checkpoint).run()
    assert (await rights_in(target))["/a"] == OPEN
    source.error = None
    assert (await copy_of(source, target, tmp_path, checkpoint).run()).verified
    assert await rights_in(target) == {record.path: OWN for record in TREE}


@pytest.fixture
def singly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a restore is a request of its own."""
    monkeypatch.setattr("anabranch.limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX", 1)


@pytest.mark.usefixtures("singly")
async def test_restore_that_is_refused_closes_what_it_made(target: ZooKeeperStore) -> None:
    source = Cut(MemoryStore(real_runtime().clock), InputError("wrong"))
    with pytest.raises(InputError, match=r"^wrong$"):
        await target.restore(source._cut())
    assert await rights_in(target) == {"/a": OWN, "/a/b": OWN}


@pytest.mark.usefixtures("singly")
@pytest.mark.parametrize("overwrite", [False, True])
async def test_catching_up_that_was_interrupted_goes_on_and_closes(
    target: ZooKeeperStore, overwrite: bool
) -> None:
    keeping = keeping_of("zk:localhost")
    catching_up = CatchingUp(real_runtime().clock, target, keeping, keeping, overwrite)
    source = Cut(MemoryStore(real_runtime().clock), Unreachable("gone"))
    with pytest.raises(Unreachable, match="open to everybody; the same once more"):
        await catching_up.run(source._cut(), each([]))
    assert await rights_in(target) == {"/a": OPEN, "/a/b": OPEN}
    done = await catching_up.run(each(TREE), target.export())
    assert (done.nodes, done.copied, done.overwritten) == (4, 2, 0)
    assert await rights_in(target) == {record.path: OWN for record in TREE}


async def test_nodes_above_stay_open_until_those_below_are_there(
    target: ZooKeeperStore,
) -> None:
    keeping = keeping_of("zk:localhost")
    catching_up = CatchingUp(real_runtime().clock, target, keeping, keeping, closes=False)
    assert (await catching_up.run(each(TREE[:1]), each([]))).copied == 1
    assert await rights_in(target) == {"/a": OPEN}
    catching_up = replace(catching_up, closes=True)
    assert (await catching_up.run(each(TREE[1:]), each([]))).copied == 3
    assert (await rights_in(target))["/a"] == OPEN
    assert (await catching_up.run(each(TREE[:1]), target.export())).copied == 0
    assert await rights_in(target) == {record.path: OWN for record in TREE}


async def test_rights_of_a_parent_that_is_written_over_are_replaced(
    target: ZooKeeperStore,
) -> None:
    await target.put("/a", b"another")
    await target.put("/a/b", b"another")
    keeping = keeping_of("zk:localhost")
    catching_up = CatchingUp(real_runtime().clock, target, keeping, keeping, overwrite=True)
    done = await catching_up.run(each(TREE), target.export())
    assert done.overwritten == 2
    assert await rights_in(target) == {record.path: OWN for record in TREE}


async def test_lost_answer_is_asked_for_again(
    target: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = target.client.set_acl, list[str]()

    async def set_acl(path: str, acl: object) -> object:
        asked.append(path)
        done = await real(path, acl)  # type: ignore[arg-type]
        if len(asked) == 1:
            raise OutcomeUnknown("lost")
        return done

    monkeypatch.setattr(target.client, "set_acl", set_acl)
    await target.restore(each(TREE[:1]))
    assert asked == ["/a", "/a"]
    assert await rights_in(target) == {"/a": OWN}
