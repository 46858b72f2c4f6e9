"""A copy is of one moment of its source, or says that the source changed, and where."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, MetadataStore, Record, Revision
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping
from anabranch.metadata.transfer.one_moment import OneMoment
from anabranch.metadata.transfer.sources import FileSource, StoreSource
from anabranch.runtime.real import real_runtime

LIVE = Keeping(access=True, one_moment=False)
RIGHT = AccessRight(1, "digest", "u:x")
Work = Callable[["LiveStore"], Awaitable[object]]


async def nothing(store: "LiveStore") -> None:
    """What most moments bring."""


class LiveStore(MemoryStore):
    """Exports each node as of when its turn comes, and has access rights, as ZooKeeper does."""

    def __init__(self) -> None:
        super().__init__(real_runtime().clock)
        self.rights: dict[str, tuple[AccessRight, ...]] = {}
        self.exports = 0
        self.meanwhile: dict[tuple[int, str], Work] = {}
        """By the number of the export and the path whose turn has come: what is done before."""
        self._ticks = 0

    async def give(self, path: str) -> None:
        """Set access rights, of which no watch tells."""
        self.rights[path] = (RIGHT,)
        self._ticks += 1

    async def moment(self) -> Revision:
        revision = await super().moment()
        return replace(revision, index=1000 * revision.index + self._ticks)

    async def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[object]:  # type: ignore[override]
        known = replace(since, index=since.index // 1000)
        async for event in super().changed_since(known, prefix):
            yield event

    async def export(  # type: ignore[override]
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        self.exports += 1
        turn = self.exports
        paths = [record.path async for record in super().export(prefix)]
        for path in paths:
            await self.meanwhile.pop((turn, path), nothing)(self)
            async for record in super().export(path):
                yield record._replace(access=self.rights.get(path, ()) if access else ())
                break


@pytest.fixture
async def source() -> AsyncIterator[LiveStore]:
    store = LiveStore()
    for path in ("/a", "/b", "/c", "/d"):
        await store.put(path, path.encode())
    yield store
    await store.close()


@pytest.fixture
async def target() -> AsyncIterator[MetadataStore]:
    store = MemoryStore(real_runtime().clock)
    yield store
    await store.close()


def origin_of(store: MetadataStore) -> StoreSource:
    return StoreSource(store, "live:", "/", LIVE)


async def copied(
    source: MetadataStore,
    target: MetadataStore,
    options: CopyOptions,
    keeping: Keeping = EVERYTHING,
) -> CopyReport:
    copy = Copy(real_runtime(), origin_of(source), target, "target:", keeping, options)
    return await copy.run()


DROP = CopyOptions(drop_acls=True)
"""The source is read once, and not looked at before."""

CHANGES: dict[str, tuple[str, Work]] = {
    "a value that was read": ("/a", lambda store: store.put("/a", b"other")),
    "a new node behind what was read": ("/a0", lambda store: store.put("/a0", b"")),
    "a node that was read is gone": ("/b", lambda store: store.delete("/b")),
}


@pytest.mark.goal("core.M8", part="digest", broken_by="copy_trusts_a_moving_source")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("verify", [True, False])
async def test_a_source_that_changes_while_it_is_read_is_named(
    source: LiveStore, target: MetadataStore, change: str, verify: bool
) -> None:
    path, work = CHANGES[change]
    source.meanwhile[1, "/d"] = work
    with pytest.raises(ConflictError, match=rf"live: has changed while it was read, {path} is not"):
        await copied(source, target, replace(DROP, verify=verify))


async def test_a_source_at_rest_is_read_once(source: LiveStore, target: MetadataStore) -> None:
    report = await copied(source, target, DROP)
    assert report.verified
    assert source.exports == 1


async def touch_a_session(store: LiveStore) -> None:
    await store.put("/a/mine", b"", ephemeral=True)
    await store.delete("/a/mine")


async def refuse_a_write(store: LiveStore) -> None:
    store._ticks += 1  # such as ZooKeeper's own number does


@pytest.mark.parametrize("work", [touch_a_session, refuse_a_write])
async def test_what_is_not_copied_may_change(
    source: LiveStore, target: MetadataStore, work: Work
) -> None:
    source.meanwhile[1, "/d"] = work
    report = await copied(source, target, DROP)
    assert report.verified
    assert source.exports == 2, "it was read a second time, and was the same"


async def test_a_node_that_was_replaced_by_its_like_has_changed(
    source: LiveStore, target: MetadataStore
) -> None:
    await source.restore(_each([Record("/e", b"e", 0, 1, 1)]))

    async def replace_it(store: LiveStore) -> None:
        await store.delete("/e")
        await store.put("/e", b"e")

    # The first reading has passed it, and the second one does not find a difference.
    source.meanwhile[2, "/"] = replace_it
    source.meanwhile[1, "/"] = refuse_a_write
    with pytest.raises(ConflictError, match="/e is not what was read"):
        await copied(source, target, DROP)


async def _each(records: list[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


# --- access rights ----------------------------------------------------------------------------


@pytest.mark.goal("core.M13", part="refused", broken_by="second_reading_skips_access")
async def test_rights_given_between_look_and_copy_are_not_lost(
    source: LiveStore, target: MetadataStore
) -> None:
    source.meanwhile[2, "/"] = lambda store: store.give("/c")
    with pytest.raises(ConflictError, match="/c is not what was read"):
        await copied(source, target, CopyOptions())
    assert source.exports >= 3


async def test_rights_that_are_kept_are_compared(source: LiveStore) -> None:
    class Keeper(LiveStore):
        async def restore(self, records: AsyncIterator[Record]) -> int:
            return await super().restore(self._noted(records))

        async def _noted(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
            async for record in records:
                self.rights[record.path] = record.access
                yield record._replace(access=())

    target = Keeper()
    await source.give("/b")
    source.meanwhile[1, "/d"] = lambda store: store.give("/a")
    with pytest.raises(ConflictError, match="/a is not what was read"):
        await copied(source, target, CopyOptions(), LIVE)
    await target.close()


async def test_rights_are_looked_up_once_if_nobody_has_any(
    source: LiveStore, target: MetadataStore
) -> None:
    assert (await copied(source, target, CopyOptions())).verified
    assert source.exports == 2, "once to look, once to copy"


# --- going on, and files ----------------------------------------------------------------------


async def test_a_change_is_named_after_an_interruption(
    source: LiveStore, target: MetadataStore, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        pass

    async def interrupt(store: LiveStore) -> None:
        raise Interrupted

    options = replace(DROP, checkpoint=f"{tmp_path}/checkpoint", span_nodes=2)
    source.meanwhile[1, "/d"] = interrupt
    with pytest.raises(Interrupted):
        await copied(source, target, options)
    source.meanwhile[2, "/d"] = lambda store: store.put("/b", b"other")
    with pytest.raises(ConflictError, match="/b is not what was read"):
        await copied(source, target, options)


@pytest.mark.goal("core.M8", part="file", broken_by="copy_trusts_a_moving_source")
async def test_an_export_of_two_moments_leaves_no_file(source: LiveStore, tmp_path: Path) -> None:
    disk, path = real_runtime().disk, f"{tmp_path}/x"
    source.meanwhile[1, "/d"] = lambda store: store.put("/a", b"other")
    for wanted in (False, True):
        moment = OneMoment(origin_of(source))
        await moment.begin()
        writing = write_export(
            *(disk, path, ExportHeader("live:", "/", 1), moment.records()), check=moment.check
        )
        if wanted:
            await writing
            break
        with pytest.raises(ConflictError, match="/a is not what was read"):
            await writing
        assert not await disk.list(str(tmp_path))
    file = FileSource(await ExportFile.open(disk, path))
    assert [record.path async for record in file.records()] == ["/", "/a", "/b", "/c", "/d"]
    assert await file.moment() is None, "a file does not change"
