"""Copies where the target cannot keep everything, has something already, or must not be hurried."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import ConflictError, Corruption, FormatError, InputError, NotFound
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, IndexKey, MetadataStore, Record
from anabranch.metadata.transfer import checkpoint as checkpoints
from anabranch.metadata.transfer import version_map
from anabranch.metadata.transfer.checkpoint import Checkpoint
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.digest import NO_NODES, Digest
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.pace import Pace
from anabranch.metadata.transfer.resting import REST_PER_TURN, TURN_NODES, TURN_S_MAX, Rests
from anabranch.metadata.transfer.sources import FileSource, StoreSource, shown
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each, records_of
from anabranch.testing.contracts.metadata_transfer import CutSource, Interrupted

VERSION_MAX = 1000
RIGHT = AccessRight(1, "digest", "u:x")


class ForgetfulStore(MemoryStore):
    """A store that keeps small versions only, and no times, as ZooKeeper does."""

    async def restore(self, records: AsyncIterator[Record]) -> int:
        return await super().restore(self._forgotten(records))

    async def _forgotten(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        async for record in records:
            native = record.native_version if record.native_version <= VERSION_MAX else 0
            yield record._replace(native_version=native, created_ms=9, modified_ms=9)


FORGETFUL = Keeping(native_version_max=VERSION_MAX, times=False)


@pytest.fixture
async def source() -> AsyncIterator[MetadataStore]:
    store = MemoryStore(real_runtime().clock)
    yield store
    await store.close()


@pytest.fixture
async def target() -> AsyncIterator[MetadataStore]:
    store = MemoryStore(real_runtime().clock)
    yield store
    await store.close()


async def copied(
    source: MetadataStore,
    target: MetadataStore,
    options: CopyOptions,
    keeping: Keeping = Keeping(),  # noqa: B008
) -> CopyReport:
    origin = StoreSource(source, "source:", "/", keeping)
    return await Copy(real_runtime(), origin, target, "target:", keeping, options).run()


# --- access rights ----------------------------------------------------------------------------


class RightsStore(MemoryStore):
    """A store that can be asked for access rights, and notes who did."""

    def __init__(self, guarded: str) -> None:
        super().__init__(real_runtime().clock)
        self._guarded = guarded
        self.asked: list[bool] = []

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        self.asked.append(access)
        return self._with_rights(super().export(prefix), access)

    async def _with_rights(
        self, records: AsyncIterator[Record], access: bool
    ) -> AsyncIterator[Record]:
        async for record in records:
            found = (RIGHT,) if access and record.path == self._guarded else ()
            yield record._replace(access=found)


@pytest.mark.parametrize(
    ("guarded", "drop", "asked"), [("", False, [True, False]), ("/a", True, [True])]
)
async def test_rights_are_read_again_only_if_there_may_be_any(
    target: MetadataStore, guarded: str, drop: bool, asked: list[bool]
) -> None:
    store = RightsStore(guarded)
    await store.put("/a", b"1")
    origin = StoreSource(store, "source:", "/", Keeping(access=True))
    options = CopyOptions(drop_acls=drop)
    report = await Copy(real_runtime(), origin, target, "target:", Keeping(), options).run()
    assert store.asked == asked
    assert report.acls_dropped == (guarded == "/a")
    assert report.verified
    await store.close()


# --- versions ---------------------------------------------------------------------------------


@pytest.mark.goal("core.M8", part="version map", broken_by="versions_are_not_noted")
async def test_versions_that_cannot_be_kept_are_noted(
    source: MetadataStore, tmp_path: Path
) -> None:
    records = [Record(f"/{i}", b"", i * 300, 1, 2) for i in range(8)]
    await source.restore(each(records))
    target = ForgetfulStore(real_runtime().clock)
    file = tmp_path / "map.tsv"
    report = await copied(source, target, CopyOptions(version_map=str(file)), FORGETFUL)
    changes = version_map.decode(str(file), file.read_bytes())
    assert changes == {f"/{i}": (f"/{i}", i * 300, 0) for i in range(4, 8)}
    assert (report.versions_changed, report.version_map) == (4, str(file))
    assert report.verified
    assert not report.times_kept
    await target.close()


async def test_version_map_is_whole_after_cuts(source: MetadataStore, tmp_path: Path) -> None:
    await source.restore(each([Record(f"/{i}", b"", 2000 + i, 1, 2) for i in range(9)]))
    target = ForgetfulStore(real_runtime().clock)
    file = tmp_path / "map.tsv"
    options = CopyOptions(version_map=str(file), checkpoint=f"{tmp_path}/checkpoint", span_nodes=2)
    for cut_at in range(10):
        broken = CutSource(source, cut_at, FORGETFUL, options)
        with pytest.raises(Interrupted):
            await Copy(real_runtime(), broken, target, "target:", FORGETFUL, options).run()
        assert not file.exists()
    report = await copied(source, target, options, FORGETFUL)
    changes = version_map.decode(str(file), file.read_bytes())
    assert changes == {f"/{i}": (f"/{i}", 2000 + i, 0) for i in range(9)}
    assert report.versions_changed == 9
    await target.close()


def test_damaged_version_map_is_refused() -> None:
    content = version_map.HEAD + version_map.encode_lines(
        [version_map.ChangedVersion("/a", 5, 0), version_map.ChangedVersion("/b", 6, 1)]
    )
    from crc32c import crc32c

    whole = content + version_map.encode_end(2, crc32c(content))
    assert version_map.decode("f", whole)["/b"].target == 1
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises((Corruption, FormatError)):
            version_map.decode("f", bytes(damaged))
    for length in range(len(whole)):
        with pytest.raises((Corruption, FormatError)):
            version_map.decode("f", whole[:length])


# --- access rights ----------------------------------------------------------------------------


async def with_rights(folder: Path) -> FileSource:
    records = [Record("/a", b"", 0, 1, 1), Record("/b", b"1", 0, 1, 1, access=(RIGHT,))]
    header = ExportHeader("zk:somewhere", "/", 1)
    path = f"{folder}/x"
    await write_export(real_runtime().disk, path, header, each(records))
    return FileSource(await ExportFile.open(real_runtime().disk, path))


@pytest.mark.goal("core.M13", part="refused", broken_by="acls_are_dropped")
async def test_access_rights_are_not_lost_silently(target: MetadataStore, tmp_path: Path) -> None:
    source = await with_rights(tmp_path)
    options = CopyOptions()
    copy = Copy(real_runtime(), source, target, "target:", Keeping(), options)
    with pytest.raises(InputError, match=r"1 nodes have access rights.*first /b.*--drop-acls"):
        await copy.run()
    assert await target.children("/") == []
    options = CopyOptions(drop_acls=True)
    report = await Copy(real_runtime(), source, target, "target:", Keeping(), options).run()
    assert report.acls_dropped == 1
    assert await target.children("/") == ["a", "b"]


async def test_store_that_cannot_hold_rights_refuses_them_itself(target: MetadataStore) -> None:
    with pytest.raises(InputError, match="/b has access rights"):
        await target.restore(each([Record("/b", b"", 0, 1, 1, access=(RIGHT,))]))


# --- nodes that are there ---------------------------------------------------------------------


async def test_overwrite_replaces_what_differs(
    source: MetadataStore, target: MetadataStore, tmp_path: Path
) -> None:
    await source.restore(each([Record("/a", b"new", 5, 1, 2), Record("/a/leaf", b"new", 7, 1, 2)]))
    await source.put("/same", b"same")
    await target.put("/a/leaf", b"old")
    await target.put("/a/more", b"kept")
    await target.put("/same", b"same")
    options = CopyOptions(overwrite=True, version_map=f"{tmp_path}/map.tsv")
    report = await copied(source, target, options)
    found = {record.path: record for record in await records_of(target)}
    assert found["/a/leaf"].value == b"new"
    assert found["/a/leaf"].native_version == 7, "a leaf is replaced exactly"
    assert found["/a"].value == b"new"
    assert found["/a/more"].value == b"kept"
    assert report.overwritten == 2
    assert report.versions_changed == 1, "a node with children keeps counting"
    assert report.verified
    assert (await copied(source, target, options)).overwritten == 1, "its version is another"


async def test_overwrite_never_issues_a_number_twice(
    source: MetadataStore, target: MetadataStore
) -> None:
    await source.restore(each([Record("/s", b"", 0, 1, 2, next_sequence=50)]))
    await target.put("/s/child", b"")
    with pytest.raises(ConflictError, match=r"/s .*below 50"):
        await copied(source, target, CopyOptions(overwrite=True))


async def test_overwrite_spares_nodes_of_sessions(
    source: MetadataStore, target: MetadataStore
) -> None:
    await source.put("/e", b"from here")
    await target.put("/e", b"alive", ephemeral=True)
    with pytest.raises(ConflictError, match="/e in the target belongs to a session"):
        await copied(source, target, CopyOptions(overwrite=True))


async def test_neighbours_in_the_target_stay(source: MetadataStore, target: MetadataStore) -> None:
    await source.put("/a", b"", indexes=(IndexKey("i", "k"),))
    await target.put("/b", b"kept")
    report = await copied(source, target, CopyOptions())
    assert report.verified
    assert await target.children("/") == ["a", "b"]


async def test_nothing_to_copy_is_said(source: MetadataStore, target: MetadataStore) -> None:
    origin = StoreSource(source, "source:", "/none", Keeping())
    copy = Copy(real_runtime(), origin, target, "target:", Keeping(), CopyOptions())
    with pytest.raises(NotFound, match="source: has nothing at or below /none"):
        await copy.run()


async def test_somebody_who_writes_to_the_target_is_noticed(
    source: MetadataStore, target: MetadataStore
) -> None:
    await source.put("/a", b"")

    async def and_another(records: AsyncIterator[Record]) -> int:
        count = await MemoryStore.restore(target, records)  # type: ignore[arg-type]
        await target.put("/stranger", b"")
        return count

    target.restore = and_another  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="somebody writes to it"):
        await copied(source, target, CopyOptions())


# --- damage, notes and pace -------------------------------------------------------------------


async def test_damaged_file_changes_nothing(target: MetadataStore, tmp_path: Path) -> None:
    path = tmp_path / "x"
    header = ExportHeader("memory:", "/", 1)
    records = [Record(f"/{i:03}", b"x" * 50_000, 0, 1, 1) for i in range(20)]
    await write_export(real_runtime().disk, str(path), header, each(records))
    content = bytearray(path.read_bytes())
    content[-200] ^= 4
    path.write_bytes(content)
    source = FileSource(await ExportFile.open(real_runtime().disk, str(path)))
    with pytest.raises(Corruption):
        await Copy(real_runtime(), source, target, "t", Keeping(), CopyOptions()).run()
    assert await target.children("/") == []


NOTE = Checkpoint("a", "b", "/", False, False, True, "/x", Digest(3, 4, 5, 6), 10)


def test_checkpoint_comes_back_and_damage_is_noticed() -> None:
    content = checkpoints.encode(NOTE)
    assert checkpoints.decode("f", content) == NOTE
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        try:
            assert checkpoints.decode("f", bytes(damaged)) == NOTE, "only white space changed"
        except (FormatError, Corruption):
            continue
    with pytest.raises(FormatError, match="format 2"):
        checkpoints.decode("f", content.replace(b'"version": 1', b'"version": 2'))
    for foreign in (b"[]", b"{}", b"\xff\x00"):
        with pytest.raises(FormatError, match="not a checkpoint"):
            checkpoints.decode("f", foreign)


def test_checkpoint_of_another_copy_is_refused() -> None:
    for name, value in {"source": "z", "target": "z", "prefix": "/z", "overwrite": True}.items():
        with pytest.raises(InputError, match=f"its {name} is"):
            replace(NOTE, **{name: value}).check_same(NOTE)
    NOTE.check_same(replace(NOTE, digest=NO_NODES, last_path=""))


def test_pace_spreads_nodes_and_bytes() -> None:
    pace = Pace(nodes_per_s=100)
    now_s = 5.0
    for _ in range(1000):
        now_s += pace.take(now_s, 0)
    assert now_s == pytest.approx(15, abs=0.1)
    pace = Pace(nodes_per_s=1e9, bytes_per_s=1000)
    assert pace.take(0.0, 500) == pytest.approx(0.5)
    assert pace.take(100.0, 500) == pytest.approx(0.5), "a pause earns no burst"
    assert Pace().take(0.0, 10**9) == 0


def test_rests_are_in_proportion_to_the_turns_before_them() -> None:
    rests, turn_s = Rests(), 0.001 * (TURN_NODES - 1)
    taken = [rests.take(7.0 + 0.001 * node) for node in range(TURN_NODES)]
    assert taken[:-1] == [0.0] * (TURN_NODES - 1)
    assert taken[-1] == pytest.approx(REST_PER_TURN * turn_s)
    now_s = 7.0 + turn_s + taken[-1] + 0.002
    taken = [rests.take(now_s) for _ in range(TURN_NODES)]
    assert taken[-1] == pytest.approx(REST_PER_TURN * 0.002), "a rest is no part of a turn"
    taken = [rests.take(1000.0) for _ in range(TURN_NODES)]
    assert taken[-1] == REST_PER_TURN * TURN_S_MAX, "who waited for a store did not hurry"


async def test_slow_copy_is_slow_and_steady(source: MetadataStore, target: MetadataStore) -> None:
    for i in range(30):
        await source.put(f"/{i}", b"")
    clock = real_runtime().clock
    began_s = clock.monotonic_s()
    await copied(source, target, CopyOptions(nodes_per_s=100))
    assert clock.monotonic_s() - began_s >= 0.25


async def test_progress_tells_how_many_nodes_there_are_once_that_is_known(
    target: MetadataStore, tmp_path: Path
) -> None:
    records = [Record(f"/{number:04}", b"v", 0, 1, 1) for number in range(600)]
    path = f"{tmp_path}/x"
    await write_export(real_runtime().disk, path, ExportHeader("zk:x", "/", 1), each(records))
    source = FileSource(await ExportFile.open(real_runtime().disk, path))
    told: list[tuple[str, int, int | None]] = []
    await Copy(
        real_runtime(),
        source,
        target,
        "target:",
        Keeping(),
        CopyOptions(),
        lambda phase, done, whole: told.append((phase, done.nodes, whole)),
    ).run()
    phases = [("look", None), ("copy", 600), ("verify", 600)]
    assert told == [(phase, nodes, whole) for phase, whole in phases for nodes in (256, 512)]


@pytest.mark.goal("core.M11", part="tools", broken_by="urls_are_shown_whole")
def test_secrets_are_not_shown() -> None:
    for url, wanted in (
        ("anabranch://h:1", "anabranch://h:1"),
        ("zk:u:hush@h:2181/c", "zk:***@h:2181/c"),
        ("oxia://u:hush@h:1/ns", "oxia://***@h:1/ns"),
        ("oxia://h:1/ns?token=hush&x=1", "oxia://h:1/ns?token=***&x=1"),
        ("embedded:a/b@c", "embedded:a/b@c"),
    ):
        assert shown(url) == wanted
