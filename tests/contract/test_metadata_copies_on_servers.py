"""Copies between a real ZooKeeper, a real Oxia and the stores of our own.

One server of each kind for all: a test has a chroot of its own, or an Oxia that was emptied. Every
ordered pair of memory, embedded, ZooKeeper and Oxia is shown with ten thousand nodes, and the
shared suite into and out of both servers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count, permutations
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from test_oxia_metadata_contract import wipe

from anabranch import limits
from anabranch.errors import ConflictError, InputError
from anabranch.metadata.factory import open_store
from anabranch.metadata.paths import name_of
from anabranch.metadata.store import AccessRight, MetadataStore, Record
from anabranch.metadata.transfer import version_map
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.digest import NO_NODES
from anabranch.metadata.transfer.keeping import Keeping, keeping_of
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.contracts.metadata_transfer import (
    CutSource,
    Interrupted,
    Transfers,
    copied,
    lasting,
    origin_of,
)
from anabranch.testing.contracts.varied_tree import NODES, SEQUENCES, varied_tree
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import Oxia, oxia

# One loop for all: grpc.aio serves one loop per process well, and many after another badly.
pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
REQUEST_BYTES = 4 << 20
MILLION = 10**6
KINDS = ("memory", "embedded", "zookeeper", "oxia")
PAIRS = sorted(permutations(KINDS, 2), key=lambda pair: KINDS.index(pair[0]))
URLS = {
    "memory": "memory:",
    "embedded": "embedded:",
    "zookeeper": f"zk:localhost/copies?jute.maxbuffer={REQUEST_BYTES}",
    "oxia": "oxia:",
}
_places = count(1)
Work = Callable[[], Awaitable[object]]


class Servers(NamedTuple):
    zookeeper: str
    oxia: Oxia

    async def empty(self, kind: str, folder: Path) -> MetadataStore:
        """A store of a kind that has nothing in it; there is one on Oxia at a time."""
        chroot = f"zk:{self.zookeeper}/copies/{next(_places)}"
        url = {
            "memory": "memory:",
            "embedded": f"embedded:{folder}",
            "zookeeper": f"{chroot}?jute.maxbuffer={REQUEST_BYTES}",
            "oxia": self.oxia.url,
        }[kind]
        if kind == "oxia":
            await wipe(self.oxia)
        return await open_store(url, real_runtime(), session_timeout_s=10)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    memory = ("-Xmx768m", f"-Djute.maxbuffer={REQUEST_BYTES}")
    with zookeeper(memory=memory) as ensemble, oxia(3) as server:
        yield Servers(ensemble.servers, server)


# --- the shared suite -------------------------------------------------------------------------


class OnServers(Transfers):
    kind = ""

    @pytest_asyncio.fixture(loop_scope="module")
    async def source(
        self, request: pytest.FixtureRequest, servers: Servers, tmp_path: Path
    ) -> AsyncIterator[MetadataStore]:
        store = await servers.empty(request.param, tmp_path / "source")
        yield store
        await store.close()

    @pytest_asyncio.fixture(loop_scope="module")
    async def target(self, servers: Servers, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = await servers.empty(self.kind, tmp_path / "target")
        yield store
        await store.close()

    @pytest.fixture
    def keeping(self) -> Keeping:
        return keeping_of(URLS[self.kind])


@pytest.mark.goal("core.M8", part="zookeeper")
@pytest.mark.parametrize("source", ["memory", "oxia"], indirect=True)
class TestIntoZooKeeper(OnServers):
    kind = "zookeeper"


@pytest.mark.goal("core.M8", part="oxia")
@pytest.mark.parametrize("source", ["memory", "zookeeper"], indirect=True)
class TestIntoOxia(OnServers):
    kind = "oxia"


@pytest.mark.goal("core.M8", part="zookeeper")
@pytest.mark.goal("core.M8", part="oxia")
@pytest.mark.parametrize("source", ["zookeeper", "oxia"], indirect=True)
class TestOutOfServers(OnServers):
    kind = "embedded"


# --- every ordered pair -----------------------------------------------------------------------


class Sources:
    """The same ten thousand nodes in a store of every kind, put there when first wanted."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        self.open: dict[str, tuple[MetadataStore, dict[str, Record]]] = {}
        self.held = AsyncExitStack()

    async def get(self, kind: str) -> tuple[MetadataStore, dict[str, Record]]:
        """A store, and what is in it."""
        if kind not in self.open:
            store = await self.servers.empty(kind, self.folder / kind)
            self.held.push_async_callback(store.close)
            assert await store.restore(each(varied_tree())) == NODES
            await age(store)
            self.open[kind] = (store, await lasting(store))
        return self.open[kind]

    async def target(self, kind: str, folder: Path) -> MetadataStore:
        if kind == "oxia":
            self.open.pop("oxia", None)  # what was there is wiped
        return await self.servers.empty(kind, folder)


async def age(store: MetadataStore) -> None:
    """Give nodes a history that the store counted itself, as far as it can go."""
    for _ in range(3):
        await store.put("/bulk/f001/n00", b"written here")
    if isinstance(store, ZooKeeperStore):
        # What it cannot restore, it can reach. By a client that does not watch: that is quicker.
        server, chroot = store.client.servers[0], store.client.chroot
        url = f"zk:{server}{chroot}?jute.maxbuffer={REQUEST_BYTES}"
        client = ZooKeeperClient(real_runtime(), url, 10)
        await client.open()
        # Short ones: on a busy machine the session's own question would wait too long behind them.
        step = [client.op_set("/versions/1000000", b"1000000")] * 1000
        for _ in range(MILLION // len(step) // 4):
            await asyncio.gather(*(client.multi(step) for _ in range(4)))
        await client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sources(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sources]:
    sources = Sources(servers, tmp_path_factory.mktemp("sources"))
    yield sources
    await sources.held.aclose()


def expected_version(target: str, record: Record) -> int | None:
    """The version a copy has by the rule; None: whatever the version map says."""
    if target == "zookeeper" and record.native_version > 1000:
        return None
    if target == "oxia" and not record.value and record.next_sequence > record.native_version + 1:
        return None  # Pulsar takes such a version for the count of sequential children
    return record.native_version


@pytest.mark.goal("core.M8", part="zookeeper")
@pytest.mark.goal("core.M8", part="oxia")
@pytest.mark.parametrize("kinds", PAIRS, ids="-to-".join)
async def test_ten_thousand_nodes(kinds: tuple[str, str], sources: Sources, tmp_path: Path) -> None:
    source, wanted = await sources.get(kinds[0])
    target = await sources.target(kinds[1], tmp_path / "target")
    keeping = keeping_of(URLS[kinds[1]])
    file = tmp_path / "map.tsv"
    report = await copied(source, target, keeping, CopyOptions(version_map=str(file)))
    found = await lasting(target)
    assert report.verified
    digests = []
    for records in (wanted, found):
        digest = NO_NODES
        for record in records.values():
            digest = digest.plus(record)
        digests.append(digest)
    assert digests[0].content == digests[1].content == report.digest.content
    assert digests[0].nodes == NODES + 1
    if kinds[1] in ("memory", "embedded"):
        assert digests[0] == digests[1]
    check_versions(kinds[1], wanted, found, file)
    await check_sequences(target, wanted)
    await check_tokens(target)
    await target.close()


def check_versions(
    target: str, wanted: dict[str, Record], found: dict[str, Record], file: Path
) -> None:
    changes = version_map.decode(str(file), file.read_bytes()) if file.exists() else {}
    for path, record in wanted.items():
        number = expected_version(target, record)
        if number is None:
            assert changes[path].source == record.native_version
            number = changes[path].target
        else:
            assert path not in changes
        assert found[path].native_version == number
    largest = max(record.native_version for record in wanted.values())
    assert largest == MILLION, "the data hold what is hard to keep"


async def check_sequences(target: MetadataStore, wanted: dict[str, Record]) -> None:
    for parent, following in SEQUENCES.items():
        assert wanted[parent].next_sequence >= following
        issued = await target.put(f"{parent}/n-", b"", sequential=True)
        assert int(name_of(issued.path).removeprefix("n-")) >= wanted[parent].next_sequence


async def check_tokens(target: MetadataStore) -> None:
    """Versions that came with the copy are good for one conditional write, once."""
    for path in ("/versions/1000000", "/versions/0000999", "/bulk/f001/n00"):
        version = (await node_at(target, path)).stat.version
        await target.put(path, b"next", version)
        with pytest.raises(ConflictError):
            await target.put(path, b"lost", version)


@pytest.mark.goal("core.M13", part="oxia")
async def test_access_rights_are_not_lost_on_the_way_to_oxia(
    servers: Servers, tmp_path: Path
) -> None:
    rights = AccessRight(31, "world", "anyone"), AccessRight(1, "ip", "127.0.0.1")
    source = await servers.empty("zookeeper", tmp_path)
    await source.restore(
        each([Record("/a", b"", 0, 1, 1), Record("/b", b"1", 0, 1, 1, access=rights)])
    )
    target = await servers.empty("oxia", tmp_path)
    origin = StoreSource(source, "zk:", "/", keeping_of(URLS["zookeeper"]))

    def copy(options: CopyOptions) -> Copy:
        return Copy(real_runtime(), origin, target, "oxia:", keeping_of(URLS["oxia"]), options)

    with pytest.raises(InputError, match=r"1 nodes have access rights.*first /b.*--drop-acls"):
        await copy(CopyOptions()).run()
    assert await target.children("/") == []
    report = await copy(CopyOptions(drop_acls=True, version_map=f"{tmp_path}/map")).run()
    assert (report.acls_dropped, report.verified) == (1, True)
    assert await target.children("/") == ["a", "b"]
    await source.close()
    await target.close()


@pytest.mark.goal("core.M8", part="zookeeper")
async def test_what_zookeeper_cannot_hold_is_found_before_anything_is_written(
    servers: Servers, tmp_path: Path
) -> None:
    largest = limits.METADATA_VALUE_BYTES_MAX
    for wrong in (
        Record("/z/𝄞", b"", 0, 1, 1),
        Record("/z/counter", b"", 0, 1, 1, next_sequence=10**6 + 1),
        Record("/z/large", b"x" * largest, 0, 1, 1),
    ):
        source = await servers.empty("memory", tmp_path)
        await source.restore(each([Record("/a", b"", 0, 1, 1), Record("/z", b"", 0, 1, 1), wrong]))
        url = f"zk:{servers.zookeeper}/copies/{next(_places)}"  # takes as much as is usual
        target = await open_store(url, real_runtime(), session_timeout_s=10)
        copy = Copy(real_runtime(), origin_of(source), target, url, keeping_of(url), CopyOptions())
        with pytest.raises(InputError, match=f"first is {wrong.path}"):
            await copy.run()
        assert await target.children("/") == []
        await target.close()
        await source.close()


# --- sources that change, and copies that are cut ---------------------------------------------


class BusySource(StoreSource):
    """A source at which somebody does something before a reading brings a path."""

    def __init__(
        self, store: MetadataStore, kind: str, when: tuple[int, str], work: Work | None
    ) -> None:
        super().__init__(store, f"{kind}:", "/", keeping_of(URLS[kind]), Sorting(real_runtime()))
        self._when = when
        self._work = work
        self.readings = 0

    async def records(self) -> AsyncIterator[Record]:  # type: ignore[override]
        self.readings += 1
        reading = self.readings
        async for record in super().records():
            if (reading, record.path) == self._when and self._work is not None:
                await self._work()
            yield record


@pytest.mark.goal("core.M8", part="zookeeper")
@pytest.mark.goal("core.M8", part="oxia")
@pytest.mark.parametrize("kind", ["zookeeper", "oxia"])
async def test_a_source_that_changes_is_named(servers: Servers, kind: str, tmp_path: Path) -> None:
    source = await servers.empty(kind, tmp_path)
    await source.restore(each([Record(f"/{name}", b"", 0, 1, 1) for name in "abcxyz"]))
    works: dict[str, Work | None] = {
        "": None,
        "/a": lambda: source.put("/a", b"other"),
        "/b": lambda: source.delete("/b"),
        "/(b0)?": lambda: source.put("/b0", b"new"),  # its parent counts it
    }
    for path, work in works.items():
        target = await servers.empty("memory", tmp_path)
        busy = BusySource(source, kind, (1, "/z"), work)
        copy = Copy(real_runtime(), busy, target, "memory:", Keeping(), CopyOptions(drop_acls=True))
        if path:
            with pytest.raises(ConflictError, match=f"changed while it was read, {path} is not"):
                await copy.run()
        else:
            assert (await copy.run()).verified
            assert busy.readings == 1, "nobody wrote, so there is no second one"
        await target.close()
    await source.close()


@pytest.mark.goal("core.M13", part="zookeeper")
async def test_access_rights_given_between_look_and_copy_are_noticed(
    servers: Servers, tmp_path: Path
) -> None:
    source = await servers.empty("zookeeper", tmp_path)
    assert isinstance(source, ZooKeeperStore)
    await source.restore(each([Record("/a", b"", 0, 1, 1), Record("/b", b"1", 0, 1, 1)]))
    target = await servers.empty("memory", tmp_path)
    closed = [Acl(31, "world", "anyone"), Acl(1, "ip", "127.0.0.1")]
    busy = BusySource(source, "zookeeper", (1, "/"), lambda: source.client.set_acl("/b", closed))
    with pytest.raises(ConflictError, match="changed while it was read, /b is not"):
        await Copy(real_runtime(), busy, target, "memory:", Keeping(), CopyOptions()).run()
    await source.close()
    await target.close()


@pytest.mark.goal("core.M8", part="zookeeper")
@pytest.mark.goal("core.M8", part="oxia")
@pytest.mark.parametrize("kind", ["zookeeper", "oxia"])
async def test_a_copy_cut_between_any_two_requests_goes_on(
    servers: Servers, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ZOOKEEPER_RESTORE_OPERATIONS_MAX", 3)
    monkeypatch.setattr(limits, "OXIA_REQUEST_OPERATIONS_MAX", 1)
    source = await servers.empty("memory", tmp_path)
    await source.restore(each([Record("/v", b"", 0, 1, 1), Record("/v/5", b"x", 5, 1, 1)]))
    for i in range(12):
        await source.put(f"/t/{i % 3}/n-", b"", sequential=True)
    wanted = await lasting(source)
    target = await servers.empty(kind, tmp_path)
    keeping = keeping_of(URLS[kind])
    options = CopyOptions(
        checkpoint=f"{tmp_path}/checkpoint", version_map=f"{tmp_path}/map", span_nodes=7
    )
    for cut_at in range(len(wanted)):
        broken = CutSource(source, cut_at, keeping, options)
        with pytest.raises(Interrupted):
            await Copy(real_runtime(), broken, target, "target:", keeping, options).run()
    assert (await copied(source, target, keeping, options)).verified
    found = await lasting(target)
    assert list(found) == list(wanted)
    for path, record in wanted.items():
        assert arrived(record, found[path], keeping, overwritten=False)
    await source.close()
    await target.close()
