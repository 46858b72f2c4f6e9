"""Topics, cursors and schemas whose ledgers lie in several storage clusters."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import ConflictError, FormatError, InputError, StorageError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.generated import schema_storage_format_pb2 as storage_pb
from anabranch.journal import Pressure
from anabranch.ledgers.catalog import PATH, StorageCatalog, StorageCluster
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.ledgers.stamps import CLUSTER_KEY, EPOCH_KEY, NO_STAMP, Stamp
from anabranch.ledgers.store import LedgerStore
from anabranch.managed_ledger import ManagedLedgerConfig, ManagedLedgers, SchemaInfo
from anabranch.managed_ledger.formats import decode_chain
from anabranch.managed_ledger.references import references
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.topic_logs import append, payloads

NAME = "t/ns/persistent/topic"
NODE = f"/managed-ledgers/{NAME}"
OTHERS = ("other", "third")
FOREVER = Retention(-1, -1)


class Site:
    """Three embedded stores as three clusters, and processes that share them."""

    def __init__(self, metadata: MetadataStore, stores: dict[str, LedgerStore]) -> None:
        self.runtime = real_runtime()
        self.metadata = metadata
        self.stores = stores
        self.processes: list[tuple[ManagedLedgers, StorageClusters]] = []
        self.opened: list[str] = []

    async def catalog(self) -> StorageCatalog:
        ids = LedgerIds(self.metadata, self.runtime)
        return await StorageCatalog.open(self.metadata, ids, "embedded:")

    async def process(self, *, entries_max: int = 2, keeps: bool = True) -> ManagedLedgers:
        """Another process, which has opened the origin's store and no other yet."""
        catalog = await self.catalog()

        async def open_other(url: str, pressure: Pressure, _held: AsyncExitStack) -> LedgerStore:
            assert pressure is self.stores["main"].pressure
            self.opened.append(url)
            return self.stores[url.removeprefix("embedded:/")]

        clusters = StorageClusters(
            catalog.ids, {"main": self.stores["main"]}, catalog=catalog, open_store=open_other
        )
        retention = FOREVER if keeps else Retention()
        config = ManagedLedgerConfig(ledger_entries_max=entries_max, retention=retention)
        topics = ManagedLedgers(
            metadata=self.metadata, ledgers=clusters, runtime=self.runtime, config=config
        )
        self.processes.append((topics, clusters))
        return topics

    async def switch(self, name: str) -> None:
        """Let new ledgers go to a cluster, as an operator would: not by one of the processes."""
        catalog = await self.catalog()
        if name not in catalog.document.clusters:
            await catalog.add(name, StorageCluster(f"embedded:/{name}"))
        await catalog.activate(name)

    async def held_by(self, name: str) -> list[int]:
        return [ledger_id async for ledger_id in self.stores[name].list()]

    async def named(self) -> dict[str, list[int]]:
        """The ledgers that the metadata name, by the cluster that their stamps say."""
        found: dict[str, set[int]] = {name: set() for name in self.stores}
        async for place, _ in references(self.metadata):
            found[place.stamp.cluster or "main"].add(place.ledger_id)
        return {name: sorted(ids) for name, ids in found.items()}

    async def stamps(self) -> list[Stamp]:
        node = await self.metadata.get(NODE)
        assert node is not None
        return [span.stamp for span in decode_chain(node.value, NAME).spans]

    async def check_nothing_is_lost_or_left(self) -> None:
        held = {name: await self.held_by(name) for name in self.stores}
        assert held == await self.named()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    runtime = real_runtime()
    stores: dict[str, LedgerStore] = {
        "main": await EmbeddedLedgerStore.open_folder(runtime.disk, f"{tmp_path}/main")
    }
    for name in OTHERS:
        stores[name] = await EmbeddedLedgerStore.open_folder(
            runtime.disk, f"{tmp_path}/{name}", pressure=stores["main"].pressure
        )
    metadata = await open_store("memory:", runtime)
    site = Site(metadata, stores)
    yield site
    for topics, clusters in site.processes:
        await topics.close()
        await clusters.close()
    for store in stores.values():
        await store.close()
    await metadata.close()


async def test_with_one_cluster_documents_are_as_pulsar_writes_them(site: Site) -> None:
    topic = await (await site.process()).open(NAME)
    for number in range(3):
        await append(topic, b"%d" % number)
    node = await site.metadata.get(NODE)
    assert node is not None
    info = pb.ManagedLedgerInfo.FromString(node.value)
    assert [list(ledger.properties) for ledger in info.ledgerInfo] == [[], []]
    assert await site.stamps() == [NO_STAMP, NO_STAMP]


@pytest.mark.goal("core.L13", part="several clusters", broken_by="stamp_is_not_published")
async def test_reads_go_where_the_stamp_says_over_many_switches(site: Site) -> None:
    sent: list[bytes] = []
    for turn, cluster in enumerate(("main", "other", "third", "main", "other")):
        if turn:
            await site.switch(cluster)
        topic = await (await site.process()).open(NAME)
        for number in range(3):
            sent.append(b"%s %d %d" % (cluster.encode(), turn, number))
            await append(topic, sent[-1])
        await topic.close()
    assert [stamp for stamp in await site.stamps() if stamp != NO_STAMP][-1] == Stamp("other", 5)
    reader = await (await site.process()).open(NAME)
    assert await payloads(reader) == sent
    ids = [span.ledger_id for span in reader.ledgers]
    assert ids == sorted(set(ids)), "one sequence over all clusters"
    await site.check_nothing_is_lost_or_left()


@pytest.mark.goal("core.L13", part="several clusters", broken_by="unstamped_is_the_active")
async def test_what_has_no_stamp_is_the_origins_after_every_switch(site: Site) -> None:
    topic = await (await site.process()).open(NAME)
    positions = [await append(topic, b"old %d" % number) for number in range(4)]
    await topic.close()
    # Somebody else's ledger, with an id that one of ours has: never to be taken for it.
    foreign = await site.stores["other"].create(positions[0].ledger_id)
    foreign.append(b"foreign", lambda _entry, _error: None)
    await foreign.close()
    for cluster in ("other", "third", "other"):
        await site.switch(cluster)
        topic = await (await site.process()).open(NAME)
        assert await payloads(topic) == [b"old %d" % number for number in range(4)]
        await topic.close()
    assert (await site.stamps())[:2] == [NO_STAMP, NO_STAMP]


@pytest.mark.goal("core.L13", part="several clusters", broken_by="publish_ignores_the_catalog")
async def test_a_late_process_publishes_nothing_in_the_cluster_of_before(site: Site) -> None:
    late = await site.process()
    topic = await late.open(NAME)
    sent = [b"%d" % number for number in range(7)]
    await append(topic, sent[0])
    await append(topic, sent[1])
    await site.switch("other")
    before = await site.held_by("main")
    for payload in sent[2:]:
        await append(topic, payload)
    stamps = await site.stamps()
    # One ledger may have been published before the switch; every later one is in the other.
    assert stamps[-1] == Stamp("other", 2)
    assert set(stamps) == {NO_STAMP, Stamp("other", 2)}
    assert set(await site.held_by("main")) <= set(before)
    assert await payloads(topic) == sent
    other = await late.open("t/ns/persistent/opened-late")
    await append(other, b"x")
    assert site.opened == ["embedded:/other"], "opened once, when it was first needed"
    await site.check_nothing_is_lost_or_left()


async def test_a_topic_opened_by_a_late_process_begins_in_the_active_cluster(site: Site) -> None:
    late = await site.process()
    await site.switch("other")
    topic = await late.open(NAME)
    await append(topic, b"x")
    assert await site.stamps() == [Stamp("other", 2)]
    assert await site.held_by("main") == []
    await site.check_nothing_is_lost_or_left()


async def test_trimming_and_deleting_reach_every_cluster(site: Site) -> None:
    topics = await site.process(keeps=False)
    topic = await topics.open(NAME)
    cursor = await topic.open_cursor("s", initial="earliest")
    for number in range(4):
        await append(topic, b"%d" % number)
    await site.switch("other")
    positions = [await append(topic, b"%d" % number) for number in range(4, 12)]
    cursor.acknowledge_cumulative(positions[5])
    assert await topic.trim() > 3
    await site.check_nothing_is_lost_or_left()
    await topics.delete(NAME)
    assert [await site.held_by(name) for name in site.stores] == [[], [], []]


async def test_a_cursors_ledger_is_stamped_and_nobody_sees_or_loses_the_stamp(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 200)
    topics = await site.process(entries_max=100)
    topic = await topics.open(NAME)
    cursor = await topic.open_cursor("s", initial="earliest", cursor_properties={"user": "value"})
    positions = [await append(topic, b"%d" % number) for number in range(60)]
    await site.switch("other")
    cursor.acknowledge(positions[1::2])
    await cursor.flushed()
    assert len(await site.held_by("other")) == 1
    cursor.set_cursor_properties({"user": "changed"})
    await cursor.flushed()
    assert cursor.cursor_properties == {"user": "changed"}
    for reserved in (CLUSTER_KEY, EPOCH_KEY, "_pulsar.anything"):
        with pytest.raises(InputError, match="reserved"):
            cursor.set_cursor_properties({reserved: "main"})
        with pytest.raises(InputError, match="reserved"):
            await topic.open_cursor("another", cursor_properties={reserved: "main"})
    node = await site.metadata.get(f"{NODE}/s")
    assert node is not None
    info = pb.ManagedCursorInfo.FromString(node.value)
    texts = {pair.name: pair.value for pair in info.cursorProperties}
    assert texts == {"user": "changed", CLUSTER_KEY: "other", EPOCH_KEY: "2"}
    await site.check_nothing_is_lost_or_left()
    again = (await (await site.process()).open(NAME)).cursors["s"]
    assert again.cursor_properties == {"user": "changed"}
    assert [p for p in positions if again.is_acknowledged(p)] == positions[1::2]


async def test_a_schemas_ledger_is_stamped_where_its_position_is(site: Site) -> None:
    late = await site.process()
    infos = [SchemaInfo("t/ns/x", 2, b"%d" % number, "user", number) for number in range(2)]
    await late.schemas.put_if_absent("t/ns/x", infos[0], b"0")
    await site.switch("other")
    await late.schemas.put_if_absent("t/ns/x", infos[1], b"1")
    node = await site.metadata.get("/schemas/t/ns/x")
    assert node is not None
    locator = storage_pb.SchemaLocator.FromString(node.value)
    texts = [{p.key: p.value for p in entry.position.properties} for entry in locator.index]
    assert texts == [{}, {CLUSTER_KEY: "other", EPOCH_KEY: "2"}]
    found = await (await site.process()).schemas.versions("t/ns/x")
    assert [schema.info for schema in found] == infos
    await site.check_nothing_is_lost_or_left()
    await late.schemas.delete("t/ns/x")
    await site.check_nothing_is_lost_or_left()


async def test_a_stamp_that_leads_nowhere_is_named(site: Site) -> None:
    topic = await (await site.process()).open(NAME)
    await append(topic, b"x")
    await topic.close()
    node = await site.metadata.get(NODE)
    assert node is not None
    for properties, error, said in (
        ({CLUSTER_KEY: "gone"}, StorageError, "no storage cluster gone in the catalog"),
        ({CLUSTER_KEY: ""}, FormatError, f"empty property {CLUSTER_KEY}"),
        ({EPOCH_KEY: "2"}, FormatError, f"but no {CLUSTER_KEY}"),
        ({CLUSTER_KEY: "main", EPOCH_KEY: "two"}, FormatError, "is no epoch: 'two'"),
    ):
        info = pb.ManagedLedgerInfo.FromString(node.value)
        for key, value in properties.items():
            info.ledgerInfo[0].properties.add(key=key, value=value)
        wrong = info.SerializeToString()
        await site.metadata.put(NODE, wrong)
        with pytest.raises(error, match=said):
            await (await site.process()).open(NAME)
        kept = await site.metadata.get(NODE)
        assert kept is not None
        assert kept.value == wrong, "nothing was changed"


async def test_properties_of_others_stay_beside_the_stamp(site: Site) -> None:
    await site.switch("other")
    topic = await (await site.process()).open(NAME)
    await append(topic, b"x")
    await topic.close()
    node = await site.metadata.get(NODE)
    assert node is not None
    info = pb.ManagedLedgerInfo.FromString(node.value)
    info.ledgerInfo[0].properties.add(key="somebody's", value="own")
    await site.metadata.put(NODE, info.SerializeToString())
    again = await (await site.process()).open(NAME)
    assert await payloads(again) == [b"x"]
    node = await site.metadata.get(NODE)
    assert node is not None
    info = pb.ManagedLedgerInfo.FromString(node.value)
    texts = {pair.key: pair.value for pair in info.ledgerInfo[0].properties}
    assert texts == {"somebody's": "own", CLUSTER_KEY: "other", EPOCH_KEY: "2"}


async def test_a_catalog_that_went_back_is_refused(site: Site) -> None:
    late = await site.process()
    topic = await late.open(NAME)
    await site.switch("other")
    await append(topic, b"0")
    await append(topic, b"1")
    await append(topic, b"2")
    old = await site.metadata.get(PATH)
    assert old is not None
    await site.metadata.put(PATH, old.value.replace(b'"epoch": 2', b'"epoch": 1'))
    with pytest.raises(ConflictError, match=r"origin main and epoch 2.* epoch 1"):
        await late.open("t/ns/persistent/another")
