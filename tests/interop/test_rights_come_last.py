"""Trees whose nodes shut out whoever restores them: all of it arrives, and is closed in the end.

The records of these trees belong to an owner; who restores them is somebody else, by name or
without one, and has no right to make children, to write or to give rights.
"""

import base64
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ConflictError, InputError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import AccessRight, MetadataStore, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.contracts.metadata_transfer import Interrupted
from anabranch.testing.servers import ZooKeeper, zookeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.M13", part="zookeeper"),
]
EVERYTHING, READ = 31, 1
OWNER = [("digest", b"owner:0wned")]
ME = [("digest", b"me:hunter2")]
NOBODY: list[tuple[str, bytes]] = []
OWNERS = AccessRight(
    EVERYTHING,
    "digest",
    f"owner:{base64.b64encode(hashlib.sha1(b'owner:0wned').digest()).decode()}",
)
SHUT = (OWNERS, AccessRight(READ, "world", "anyone"))
SECRET = (OWNERS,)
TREE = [
    Record("/", b"", 0, 0, 0, access=SHUT),
    Record("/a", b"1", 3, 0, 0, next_sequence=9, access=SHUT),
    Record("/a/b", b"2", 0, 0, 0, access=SHUT),
    Record("/a/b/c", b"3", 2, 0, 0, access=SHUT),
    Record("/a/b/d", b"4", 0, 0, 0),
    Record("/a/e", b"5", 1, 0, 0, next_sequence=3, access=SHUT),
    Record("/f", b"6", 0, 0, 0),
    Record("/f/g", b"7", 0, 0, 0, access=SHUT),
]
_places = count(1)


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeper]:
    with zookeeper() as ensemble:
        yield ensemble


@pytest.fixture
def url(ensemble: ZooKeeper) -> str:
    return f"{ensemble.url}/rights-{next(_places)}"


async def opened(url: str, who: Sequence[tuple[str, bytes]]) -> ZooKeeperStore:
    return await ZooKeeperStore.open(real_runtime(), url, identities=who)


async def seen_by_owner(url: str) -> list[Record]:
    store = await opened(url, OWNER)
    found = [record async for record in store.export()]
    await store.close()
    return found


def told(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [(record.path, record.value, record.native_version, record.access) for record in records]


async def restored(url: str, records: Sequence[Record], who: Sequence[tuple[str, bytes]]) -> int:
    store = await opened(url, who)
    try:
        return await store.restore(each(records))
    finally:
        await store.close()


class HeldRecords(StoreSource):
    """A source with rights that the store behind it need not hold."""

    def __init__(self, store: MetadataStore, records: Sequence[Record]) -> None:
        super().__init__(store, "source:", "/", Keeping(access=True))
        self._held = records

    def records(self) -> AsyncIterator[Record]:
        return each(self._held)

    def outlines(self) -> AsyncIterator[Record]:
        return each(self._held)


def copy_of(
    source: MetadataStore, records: Sequence[Record], target: ZooKeeperStore, url: str, folder: Path
) -> Copy:
    options = CopyOptions(
        checkpoint=f"{folder}/checkpoint", version_map=f"{folder}/map", span_nodes=2
    )
    origin = HeldRecords(source, records)
    return Copy(real_runtime(), origin, target, "target:", keeping_of(url), options)


@pytest.mark.parametrize("who", [ME, NOBODY], ids=["by name", "without a name"])
async def test_restored_tree_shuts_out_who_restored_it(
    url: str, who: list[tuple[str, bytes]]
) -> None:
    assert await restored(url, TREE, who) == len(TREE)
    there = await seen_by_owner(url)
    assert told(there) == told(TREE)
    assert all(
        record.next_sequence >= wanted.next_sequence
        for record, wanted in zip(there, TREE, strict=True)
    )
    again = await opened(url, who)
    with pytest.raises(InputError, match=r"/a.*ACL"):
        await again.put("/a/more", b"")
    await again.close()


async def test_restore_that_stops_leaves_nothing_open(url: str) -> None:
    owner = await opened(url, OWNER)
    await owner.put("/f", b"in the way")
    await owner.close()
    with pytest.raises(ConflictError, match="/f exists already"):
        await restored(url, TREE[1:], NOBODY)
    rights = {record.path: record.access for record in await seen_by_owner(url)}
    assert rights == {
        "/": (),
        "/f": (),
        **{record.path: record.access for record in TREE[1:6]},
    }


async def test_nobody_else_may_look_at_a_secret_meanwhile(url: str) -> None:
    store, stranger = await opened(url, ME), await opened(url, NOBODY)
    secret = Record("/secret", b"x", 2, 0, 0, access=SECRET)
    refused: list[str] = []

    async def looked_at() -> AsyncIterator[Record]:
        yield secret
        for number in range(2000):
            yield Record(f"/secret/{number:05}", b"y", 0, 0, 0)
            if number == 1999:
                with pytest.raises(InputError, match="ACL") as told:
                    await stranger.get("/secret")
                refused.append(str(told.value))

    await store.restore(looked_at())
    assert refused
    with pytest.raises(InputError, match="ACL"):
        await store.get("/secret")
    await stranger.close()
    await store.close()
    (_, there, *_) = await seen_by_owner(url)
    assert told([there]) == told([secret])


@pytest.mark.parametrize("who", [ME, NOBODY], ids=["by name", "without a name"])
async def test_copy_in_spans_goes_on_below_closed_nodes(
    url: str, who: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    source, target = await open_store("memory:", real_runtime()), await opened(url, who)
    report = await copy_of(source, TREE, target, url, tmp_path).run()
    assert report.verified
    assert told(await seen_by_owner(url)) == told(TREE)
    await target.close()
    await source.close()


class CutRecords(HeldRecords):
    """Breaks off before a record, once the copy writes."""

    def __init__(self, store: MetadataStore, records: Sequence[Record], cut_at: int) -> None:
        super().__init__(store, records)
        self._cut_at = cut_at
        self._looks = 0

    async def _cut(self) -> AsyncIterator[Record]:
        for place, record in enumerate(self._held):
            if place == self._cut_at:
                raise Interrupted
            yield record

    def records(self) -> AsyncIterator[Record]:
        self._looks += 1
        return super().records() if self._looks == 1 else self._cut()


async def test_copy_that_is_cut_anywhere_goes_on_and_closes_all(
    ensemble: ZooKeeper, tmp_path: Path
) -> None:
    source = await open_store("memory:", real_runtime())
    for cut_at in (1, 3, 4, 6):
        url = f"{ensemble.url}/rights-{next(_places)}"
        folder = tmp_path / str(cut_at)
        folder.mkdir()
        target = await opened(url, ME)
        copy = copy_of(source, TREE, target, url, folder)
        copy._source = copy._moment._source = CutRecords(source, TREE, cut_at)
        with pytest.raises(Interrupted):
            await copy.run()
        await target.close()
        target = await opened(url, ME)
        report = await copy_of(source, TREE, target, url, folder).run()
        assert report.verified
        assert told(await seen_by_owner(url)) == told(TREE)
        await target.close()
    await source.close()


def cut_closing(target: ZooKeeperStore, after: int) -> None:
    """End the copy when it wants to set the rights of one more node."""
    left, real = [after], target.client.set_acl

    async def set_acl(path: str, acl: Sequence[Acl], *more: Any) -> Any:
        if not left[0]:
            raise Interrupted
        left[0] -= 1
        return await real(path, acl, *more)

    target.client.set_acl = set_acl  # type: ignore[method-assign]


async def test_copy_that_is_cut_while_it_closes_goes_on(
    ensemble: ZooKeeper, tmp_path: Path
) -> None:
    source = await open_store("memory:", real_runtime())
    closed = sum(bool(record.access) for record in TREE)
    for cut_at in (0, 2, closed - 1):
        url = f"{ensemble.url}/rights-{next(_places)}"
        folder = tmp_path / str(cut_at)
        folder.mkdir()
        target = await opened(url, ME)
        cut_closing(target, cut_at)
        with pytest.raises(Interrupted):
            await copy_of(source, TREE, target, url, folder).run()
        await target.close()
        half = {record.path: record.access for record in await seen_by_owner(url)}
        assert sum(half[record.path] != record.access for record in TREE) >= closed - cut_at
        target = await opened(url, ME)
        report = await copy_of(source, TREE, target, url, folder).run()
        assert report.verified
        assert told(await seen_by_owner(url)) == told(TREE)
        await target.close()
    await source.close()
