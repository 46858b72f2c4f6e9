"""A copy that was killed left nodes open: whoever looks is told, and the same copy closes them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.errors import ConflictError, InputError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.open_copies import OpenCopy, decode, encode, sentences_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.naming import OPEN_COPIES_ROOT
from anabranch.metadata.zookeeper.replies import Acl, Code, Refusal
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.migrations.engine.bulk_local import LocalBulk
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.model_stores import modelled_zookeeper

OWN = (AccessRight(31, "digest", "owner:abc="),)
TREE = [Record(path, b"v", 0, 0, 0, access=OWN) for path in ("/a", "/a/b", "/a/c", "/a/d")]
CLOSED = {record.path: OWN for record in TREE}
OPEN = (*OWN, AccessRight(31, "world", "anyone"))


class KilledError(BaseException):
    """Nobody cleans up after it."""


class Killable(StoreSource):
    """Ends the copy for good before its last record, while that is wanted."""

    def __init__(self, name: str = "source:", *, kills: bool = True) -> None:
        super().__init__(MemoryStore(real_runtime().clock), name, "/", Keeping(access=True))
        self.kills = kills
        self._looks = 0

    async def records(self) -> AsyncIterator[Record]:
        self._looks += 1
        dies = self.kills and self._looks > 1  # not while it looks before it writes
        for record in TREE[:-1] if dies else TREE:
            yield record
        if dies:
            raise KilledError

    def outlines(self) -> AsyncIterator[Record]:
        return each(TREE)


@pytest.fixture
async def target(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ZooKeeperStore]:
    monkeypatch.setattr("anabranch.limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX", 1)
    async with modelled_zookeeper("killed") as url:
        store = await ZooKeeperStore.open(real_runtime(), url)
        yield store
        await store.close()


async def copied(
    source: Killable, target: ZooKeeperStore, folder: Path, checkpoint: str = ""
) -> CopyReport:
    options = CopyOptions(version_map=f"{folder}/map", checkpoint=checkpoint, span_nodes=1)
    keeping = keeping_of("zk:localhost")
    return await Copy(real_runtime(), source, target, "target:", keeping, options).run()


async def rights_in(target: ZooKeeperStore) -> dict[str, tuple[AccessRight, ...]]:
    return {record.path: record.access async for record in target.export() if record.path != "/"}


async def killed(target: ZooKeeperStore, folder: Path, checkpoint: str = "") -> None:
    with pytest.raises(KilledError):
        await copied(Killable(), target, folder, checkpoint)
    assert OPEN in (await rights_in(target)).values(), "it did leave something open"


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="open_copies_leave_no_word")
async def test_who_looks_at_the_target_is_told(target: ZooKeeperStore, tmp_path: Path) -> None:
    await killed(target, tmp_path)
    sentences = await sentences_of(target.open_notes)
    assert len(sentences) == 1
    assert "a copy of source: begun at " in sentences[0]
    assert "at and below / may be open" in sentences[0]
    assert await target.children("/") == ["a"], "the note itself is not shown"


async def test_same_copy_closes_what_it_finds_open(target: ZooKeeperStore, tmp_path: Path) -> None:
    await killed(target, tmp_path)
    there = await rights_in(target)
    with pytest.raises(ConflictError, match="the target has"):
        await copied(Killable(kills=False), target, tmp_path)
    assert await rights_in(target) == dict.fromkeys(there, OWN)
    assert await sentences_of(target.open_notes) == []


async def test_copy_with_a_checkpoint_goes_on_and_closes(
    target: ZooKeeperStore, tmp_path: Path
) -> None:
    checkpoint = f"{tmp_path}/checkpoint"
    await killed(target, tmp_path, checkpoint)
    (sentence,) = await sentences_of(target.open_notes)
    assert f"with the same checkpoint, {checkpoint}," in sentence
    report = await copied(Killable(kills=False), target, tmp_path, checkpoint)
    assert report.verified
    assert await rights_in(target) == CLOSED
    assert await sentences_of(target.open_notes) == []


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="word_of_open_copies_stays")
async def test_copy_that_ends_leaves_nothing_behind(target: ZooKeeperStore, tmp_path: Path) -> None:
    assert (await copied(Killable(kills=False), target, tmp_path)).verified
    names, _ = await target.client.children("/")
    assert names == ["a"]


async def test_another_copy_leaves_the_word_alone(target: ZooKeeperStore, tmp_path: Path) -> None:
    await killed(target, tmp_path)
    with pytest.raises(ConflictError, match="the target has"):
        await copied(Killable("another:", kills=False), target, tmp_path)
    (sentence,) = await sentences_of(target.open_notes)
    assert "source:" in sentence


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="copies_of_others_are_gone_on_with")
@pytest.mark.parametrize("with_checkpoint", [False, True])
async def test_somebody_else_may_not_go_on(
    target: ZooKeeperStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    with_checkpoint: bool,
) -> None:
    checkpoint = f"{tmp_path}/checkpoint" if with_checkpoint else ""
    await killed(target, tmp_path, checkpoint)
    before = await rights_in(target)
    real = target.client.set_acl

    async def set_acl(path: str, acl: list[Acl], *more: int) -> object:
        if path.startswith(OPEN_COPIES_ROOT):
            raise Refusal(Code.NO_AUTH)
        return await real(path, acl, *more)

    monkeypatch.setattr(target.client, "set_acl", set_acl)
    with pytest.raises(InputError, match="begun by somebody else"):
        await copied(Killable(kills=False), target, tmp_path, checkpoint)
    assert await rights_in(target) == before
    assert len(await sentences_of(target.open_notes)) == 1


async def test_bulk_copy_leaves_word_until_it_ends(
    target: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with modelled_zookeeper("source") as url:
        source = await ZooKeeperStore.open(real_runtime(), url)
        await source.restore(each(TREE))
        places = StorePlace(url, source), StorePlace("zk:localhost", target)
        real = target.restore

        async def restore(records: AsyncIterator[Record]) -> int:
            await real(records)
            raise KilledError

        monkeypatch.setattr(target, "restore", restore)
        engine = LocalBulk(real_runtime())
        with pytest.raises(KilledError):
            await engine.copy(*places)
        (sentence,) = await sentences_of(target.open_notes)
        assert places[0].name in sentence
        monkeypatch.undo()
        assert (await engine.copy(*places)).nodes == len(TREE) + 1
        assert await rights_in(target) == CLOSED
        assert await sentences_of(target.open_notes) == []
        await source.close()


async def test_word_that_cannot_be_read_is_told_of(target: ZooKeeperStore) -> None:
    for number, note in enumerate(
        (b"{", b"[]", b'{"format": "anabranch-open-copy", "version": 9}')
    ):
        await target.open_notes.put(str(number), note)
    sentences = await sentences_of(target.open_notes)
    assert [sentence.rpartition(": ")[2] for sentence in sentences] == [
        "the note 0 of an open copy is no JSON",
        "the note 1 is not one of an open copy",
        "this build knows 1",
    ]
    copy = OpenCopy("source:", "/", 1)
    assert decode("name", encode(copy)) == copy
