"""Access rights that a target does not take are found before a copy writes anything."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.replies import Acl, Code, Refusal
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.migrations.engine.bulk import StorePlace
from anabranch.migrations.engine.bulk_local import LocalBulk
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.model_stores import modelled_zookeeper

OWN = AccessRight(31, "digest", "owner:abc=")
SASL = AccessRight(31, "sasl", "bob")


class Held(StoreSource):
    """A source with the records of a list."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(MemoryStore(real_runtime().clock), "source:", "/", Keeping(access=True))
        self._held = records

    def records(self) -> AsyncIterator[Record]:
        return each(self._held)

    def outlines(self) -> AsyncIterator[Record]:
        return each(self._held)


@pytest.fixture
async def target() -> AsyncIterator[ZooKeeperStore]:
    async with modelled_zookeeper("refusing") as url:
        store = await ZooKeeperStore.open(real_runtime(), url)
        yield store
        await store.close()


def copy_of(
    records: Sequence[Record], target: ZooKeeperStore, folder: Path, *, overwrite: bool = False
) -> Copy:
    options = CopyOptions(version_map=f"{folder}/map", overwrite=overwrite)
    keeping = keeping_of("zk:localhost")
    return Copy(real_runtime(), Held(records), target, "target:", keeping, options)


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="rights_are_asked_about_too_late")
@pytest.mark.parametrize(
    ("right", "said"),
    [
        (SASL, r"1 of these nodes.*/b: .*scheme 'sasl' \(of 'bob'\).*authProvider.*export\.acl"),
        (AccessRight(31, "digest", "nobody"), r"/b: .*'nobody', which is nobody .* 'digest'"),
    ],
)
async def test_scheme_that_the_servers_do_not_know(
    target: ZooKeeperStore, tmp_path: Path, right: AccessRight, said: str
) -> None:
    tree = [
        Record("/a", b"1", 0, 0, 0, access=(OWN,)),
        Record("/b", b"2", 0, 0, 0, access=(OWN, right)),
    ]
    before = (await target.client.exists("/"))._replace(pzxid=0)
    with pytest.raises(InputError, match=said):
        await copy_of(tree, target, tmp_path).run()
    names, stat = await target.client.children("/")
    assert (names, stat._replace(pzxid=0)) == ([], before), "nothing was written, nor is a trace"


async def test_rights_are_asked_about_once(
    target: ZooKeeperStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = target.client.send, list[int]()

    async def send(request: object, **more: object) -> object:
        asked.append(1)
        return await real(request, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(target.client, "send", send)
    for number in range(100):
        assert await target.why_no_rights(f"/{number}", (OWN,), may_be_there=False) is None
    assert len(asked) == 1


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="every_node_counts_as_ours")
@pytest.mark.parametrize(
    ("there", "lets_us"),
    [
        ([Acl(31, "world", "anyone")], True),
        ([Acl(1, "world", "anyone"), Acl(31, "ip", "127.0.0.1")], True),
        ([Acl(1, "world", "anyone")], False),
        ([Acl(31, "digest", "owner:x"), Acl(1, "world", "anyone")], False),
        ([Acl(31, "digest", "me:abc="), Acl(1, "world", "anyone")], True),
        ([Acl(31, "sasl", "bob"), Acl(1, "world", "anyone")], False),
        (None, False),
    ],
)
async def test_node_that_does_not_let_us_set_its_rights(
    target: ZooKeeperStore,
    monkeypatch: pytest.MonkeyPatch,
    there: list[Acl] | None,
    lets_us: bool,
) -> None:
    async def get_acl(path: str) -> object:
        del path
        if there is None:
            raise Refusal(Code.NO_AUTH)
        return tuple(there), None

    monkeypatch.setattr(target.client, "get_acl", get_acl)
    for path, may_be_there in (("/", False), ("/a", True)):
        reason = await target.why_no_rights(path, (OWN,), may_be_there=may_be_there)
        assert (reason is None) == lets_us
        assert lets_us or "may administer it" in str(reason)
    assert await target.why_no_rights("/a", (OWN,), may_be_there=False) is None


async def test_nodes_that_are_there_are_asked_about_if_they_are_written_over(
    target: ZooKeeperStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await target.put("/a", b"of others")
    await target.put("/a/b", b"of others")
    real = target.client.get_acl

    async def get_acl(path: str) -> object:
        if path == "/a":
            raise Refusal(Code.NO_AUTH)
        return await real(path)

    monkeypatch.setattr(target.client, "get_acl", get_acl)
    tree = [Record("/a", b"1", 0, 0, 0, access=(OWN,)), Record("/a/b", b"2", 0, 0, 0)]
    with pytest.raises(InputError, match="/a: it is in the target already"):
        await copy_of(tree, target, tmp_path, overwrite=True).run()
    node = await target.get("/a/b")
    assert node is not None
    assert node.value == b"of others"


async def test_bulk_copy_asks_first_as_well(target: ZooKeeperStore) -> None:
    async with modelled_zookeeper("source") as url:
        source = await ZooKeeperStore.open(real_runtime(), url)
        await source.restore(each([Record("/a", b"1", 0, 0, 0, access=(OWN,))]))
        real = source.export

        def export(*which: str, **how: bool) -> AsyncIterator[Record]:
            return with_sasl(real(*which, **how))

        async def with_sasl(records: AsyncIterator[Record]) -> AsyncIterator[Record]:
            async for record in records:
                yield record._replace(access=(SASL,)) if record.path == "/a" else record

        source.export = export  # type: ignore[method-assign,assignment]
        places = StorePlace(url, source), StorePlace("zk:localhost", target)
        with pytest.raises(InputError, match="authProvider"):
            await LocalBulk(real_runtime()).copy(*places)
        assert (await target.client.children("/"))[0] == []
        await source.close()
