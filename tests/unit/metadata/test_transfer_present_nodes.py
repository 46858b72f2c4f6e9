"""A copy that goes on finds nodes whose counters were not raised before it was interrupted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import ConflictError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import EVERYTHING, Keeping
from anabranch.metadata.transfer.present_nodes import PresentNodes
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each, records_of
from anabranch.testing.contracts.metadata_transfer import CutSource, Interrupted, lasting, origin_of

LATE = Keeping(sequences=False)
PARENT = Record("/p", b"", 0, 1, 1, next_sequence=2500)


class LateStore(MemoryStore):
    """Restores one node at a time, and raises counters at the end, as ZooKeeper does."""

    async def restore(self, records: AsyncIterator[Record]) -> int:
        restored: list[Record] = []
        async for record in records:
            restored.append(record)
            await super().restore(each([record._replace(next_sequence=0)]))
        present = PresentNodes(self, LATE, lambda path, source, target: None, overwrite=False)
        for record in restored:
            assert not await present.is_missing(record)
        await present.raise_counters()
        return len(restored)


@pytest.fixture
async def target() -> AsyncIterator[MetadataStore]:
    store = LateStore(real_runtime().clock)
    yield store
    await store.close()


def present_in(target: MetadataStore, keeping: Keeping, *, overwrite: bool = False) -> PresentNodes:
    return PresentNodes(target, keeping, lambda path, source, to: None, overwrite=overwrite)


async def test_numbers_are_issued_until_none_can_come_again(target: MetadataStore) -> None:
    await target.put("/p/child", b"kept")
    assert PARENT.next_sequence > 2 * limits.METADATA_COPY_NUMBERS_MAX
    present = present_in(target, LATE)
    assert not await present.is_missing(PARENT), "it is there, but for its counter"
    await present.raise_counters()
    found = {record.path: record for record in await records_of(target)}
    assert list(found) == ["/", "/p", "/p/child"]
    assert found["/p"].next_sequence == PARENT.next_sequence
    issued = await target.put("/p/n-", b"", sequential=True)
    assert int(issued.path[-10:]) >= PARENT.next_sequence


@pytest.mark.parametrize(("keeping", "overwrite"), [(EVERYTHING, False), (LATE, True)])
async def test_elsewhere_a_low_counter_is_a_conflict(
    target: MetadataStore, keeping: Keeping, overwrite: bool
) -> None:
    await target.put("/p/child", b"")
    present = present_in(target, keeping, overwrite=overwrite)
    with pytest.raises(ConflictError, match="/p"):
        await present.is_missing(PARENT)


@pytest.mark.broken_by("resume_leaves_counters_behind")
async def test_a_copy_cut_before_counters_were_raised_goes_on(
    target: MetadataStore, tmp_path: Path
) -> None:
    source = MemoryStore(real_runtime().clock)
    for i in range(6):
        await source.put(f"/{i % 2}/n-", b"", sequential=True)
    wanted = await lasting(source)
    options = CopyOptions(checkpoint=f"{tmp_path}/checkpoint", span_nodes=3)
    for cut_at in range(len(wanted)):
        broken = CutSource(source, cut_at, LATE, options)
        with pytest.raises(Interrupted):
            await Copy(real_runtime(), broken, target, "target:", LATE, options).run()
    copy = Copy(real_runtime(), origin_of(source), target, "target:", LATE, options)
    assert (await copy.run()).verified
    for path, record in (await lasting(target)).items():
        assert record.next_sequence >= wanted[path].next_sequence
    await source.close()
