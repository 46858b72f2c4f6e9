"""What a copy of a whole tree must bring from one metadata store to another.

Subclasses give the fixtures `source` and `target`, two open and empty `MetadataStore`s, `keeping`,
what the target's kind holds of a record, and `tmp_path`.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.paths import name_of, order_key
from anabranch.metadata.store import IndexKey, MetadataStore, Record
from anabranch.metadata.transfer import version_map
from anabranch.metadata.transfer.comparing import arrived
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.runtime import Disk
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_copies import each, records_of

LARGE_VALUE_BYTES = 1_000_000
"""As much as every store takes."""
SEQUENCE_DELETED = 3
ANY_ORDER = Keeping(path_order=False)


async def fill(store: MetadataStore) -> None:
    """A tree with what copies get wrong."""
    await store.restore(
        each(
            [
                Record("/v", b"", 0, 1_000, 2_000),
                Record("/v/hundred", b"100", 100, 1_000, 2_000),
                Record("/v/million", b"10^6", 10**6, 1_000, 2_000),
                Record("/v/native", b"2^40", 2**40, 1_000, 2_000),
            ]
        )
    )
    await store.put("/empty", b"")
    await store.put("/large", b"\x00\xff" * (LARGE_VALUE_BYTES // 2))
    await store.put("/ä€/ß with spaces", "ü".encode(), indexes=(IndexKey("by", "ü"),))
    await store.put("/deep" + "/d" * 60, b"down here")
    # Siblings whose names sort otherwise than their paths do as text.
    for path in ("/s", "/s-", "/s/x", "/s.a", "/s0"):
        await store.put(path, path.encode())
    for _ in range(SEQUENCE_DELETED):
        await store.put("/issued/n-", b"", sequential=True)
    await store.delete(f"/issued/n-{SEQUENCE_DELETED - 1:010}")
    await store.put("/mine", b"", ephemeral=True)


async def lasting(store: MetadataStore) -> dict[str, Record]:
    """What is exported and does not live by a session, in path order."""
    records = sorted(await records_of(store), key=lambda record: order_key(record.path))
    return {record.path: record for record in records if record.session is None}


def origin_of(store: MetadataStore) -> StoreSource:
    """The source of a copy, in whatever order its kind of store exports."""
    return StoreSource(store, "source:", "/", ANY_ORDER, Sorting(real_runtime()))


class Interrupted(Exception):
    """The copy was ended from outside."""


class CutSource(StoreSource):
    """A source that breaks off before a given record, while the copy writes."""

    def __init__(
        self, store: MetadataStore, cut_at: int, keeping: Keeping, options: CopyOptions
    ) -> None:
        super().__init__(store, "source:", "/", ANY_ORDER, Sorting(real_runtime()))
        self._cut_at = cut_at
        # Where nodes may not fit, a copy that begins reads everything before it writes.
        self._is_looked_at = keeping.refuses_some and not Path(options.checkpoint).exists()

    async def _cut(self) -> AsyncIterator[Record]:
        place = 0
        async for record in super().records():
            if place == self._cut_at:
                raise Interrupted
            place += 1
            yield record

    def records(self) -> AsyncIterator[Record]:
        """See `RecordSource.records`."""
        if self._is_looked_at:
            self._is_looked_at = False
            return super().records()
        return self._cut()


class CutDisk:
    """A disk on which a copy ends when it wants to store one checkpoint more than `kept`."""

    def __init__(self, disk: Disk, kept: int) -> None:
        self._disk = disk
        self._left = kept

    async def replace(self, path: str, content: Buffer) -> None:
        """See `Disk.replace`."""
        if not self._left:
            raise Interrupted
        self._left -= 1
        await self._disk.replace(path, content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


async def copied(
    source: MetadataStore, target: MetadataStore, keeping: Keeping, options: CopyOptions
) -> CopyReport:
    """A copy of everything, carried out."""
    origin = origin_of(source)
    return await Copy(real_runtime(), origin, target, "target:", keeping, options).run()


async def fill_small(store: MetadataStore) -> None:
    """A tree of few nodes, for copies that break off at each."""
    for i in range(12):
        await store.put(f"/t/{i % 3}/{i}", str(i).encode())
    await store.put("/t/1/n-", b"", sequential=True)


def resumable(folder: Path) -> CopyOptions:
    """A copy that notes its progress often."""
    return CopyOptions(
        checkpoint=f"{folder}/checkpoint", version_map=f"{folder}/map.tsv", span_nodes=2
    )


class Transfers:
    """Everything arrives, as well as the target can hold it."""

    async def test_everything_arrives(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill(source)
        options = CopyOptions(version_map=f"{tmp_path}/map.tsv")
        report = await copied(source, target, keeping, options)
        wanted, found = await lasting(source), await lasting(target)
        assert list(found) == list(wanted)
        for path, record in wanted.items():
            assert found[path].value == record.value
            assert arrived(record, found[path], keeping, overwritten=False)
            if keeping.times:
                assert found[path].created_ms == record.created_ms
                assert found[path].modified_ms == record.modified_ms
        assert report.verified
        assert report.times_kept == keeping.times
        assert report.digest.nodes == len(wanted)
        assert report.digest.value_bytes == sum(len(record.value) for record in wanted.values())

    async def test_ephemeral_nodes_are_left_out(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill(source)
        options = CopyOptions(version_map=f"{tmp_path}/map.tsv")
        report = await copied(source, target, keeping, options)
        assert report.ephemerals == 1
        assert not await target.exists("/mine")

    async def test_next_sequential_id_is_larger_than_any_issued(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill(source)
        await copied(source, target, keeping, CopyOptions(version_map=f"{tmp_path}/map.tsv"))
        issued = await target.put("/issued/n-", b"", sequential=True)
        assert int(name_of(issued.path).removeprefix("n-")) >= SEQUENCE_DELETED

    async def test_versions_can_be_used_or_are_mapped(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill(source)
        file = tmp_path / "map.tsv"
        report = await copied(source, target, keeping, CopyOptions(version_map=str(file)))
        changes = version_map.decode(str(file), file.read_bytes()) if file.exists() else {}
        assert report.versions_changed == len(changes)
        for path, record in (await lasting(source)).items():
            node = await node_at(target, path)
            native = node.stat.version.native
            if path in changes:
                assert changes[path].source == record.native_version
                assert changes[path].target == native
            else:
                assert native == record.native_version
            await target.put(path, b"next", node.stat.version)
            with pytest.raises(ConflictError):
                await target.put(path, b"lost", node.stat.version)

    async def test_cut_at_any_record_and_resumed(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill_small(source)
        options = resumable(tmp_path)
        for cut_at in range(len(await lasting(source))):
            broken = CutSource(source, cut_at, keeping, options)
            copy = Copy(real_runtime(), broken, target, "target:", keeping, options)
            with pytest.raises(Interrupted):
                await copy.run()
        report = await copied(source, target, keeping, options)
        assert 0 < report.resumed_after < report.digest.nodes
        assert report.verified
        assert list(await lasting(target)) == list(await lasting(source))
        left = await real_runtime().disk.exists(options.checkpoint)
        assert not left, "a copy that is done leaves no checkpoint"

    async def test_cut_before_any_checkpoint_and_resumed(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill_small(source)
        options = resumable(tmp_path)
        origin = origin_of(source)
        cuts = 0
        while True:
            # The first checkpoint after the beginning is lost: the target is one span ahead of it.
            runtime = replace(real_runtime(), disk=CutDisk(real_runtime().disk, kept=cuts % 2))
            copy = Copy(runtime, origin, target, "target:", keeping, options)
            try:
                report = await copy.run()
                break
            except Interrupted:
                cuts += 1
                assert cuts < 100, "the copy does not get on"
        assert cuts > len(await lasting(source)) / options.span_nodes
        assert report.verified
        assert list(await lasting(target)) == list(await lasting(source))

    async def test_source_that_changed_is_not_gone_on_with(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill_small(source)
        options = resumable(tmp_path)
        broken = CutSource(source, 7, keeping, options)
        copy = Copy(real_runtime(), broken, target, "target:", keeping, options)
        with pytest.raises(Interrupted):
            await copy.run()
        await source.put("/t", b"changed")
        before = await records_of(target)
        with pytest.raises(ConflictError, match="has changed since"):
            await copied(source, target, keeping, options)
        assert await records_of(target) == before

    async def test_occupied_target_is_refused_and_left_as_it_is(
        self, source: MetadataStore, target: MetadataStore, keeping: Keeping, tmp_path: Path
    ) -> None:
        await fill(source)
        await target.put("/s/x", b"kept")
        before = await records_of(target)
        options = CopyOptions(version_map=f"{tmp_path}/map.tsv")
        with pytest.raises(ConflictError, match="/s/x"):
            await copied(source, target, keeping, options)
        assert await records_of(target) == before
