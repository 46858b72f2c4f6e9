"""Any tree comes through an export file and through every ordered pair of stores unchanged."""

import asyncio
import tempfile
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import Corruption, FormatError
from anabranch.metadata.paths import ancestors_of, order_key
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader, decode_records, encode_record
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.sources import FileSource, StoreSource
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each, records_of
from anabranch.testing.contracts.transfer_places import PLACES, empty_store

NAMES = st.text(st.sampled_from("ab-.0ä€𝄞 "), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
NUMBERS = st.integers(0, 2**62 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INDEXES = st.lists(st.builds(IndexKey, TEXTS.filter(bool), TEXTS), max_size=3, unique=True).map(
    tuple
)
ACLS = st.lists(st.builds(AccessRight, st.integers(0, 31), TEXTS, TEXTS), max_size=2).map(tuple)
RECORDS = st.builds(
    Record,
    *(PATHS, st.binary(max_size=40), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none(), INDEXES),
    access=st.just(()),
)


def tree_of(records: list[Record]) -> list[Record]:
    """A tree in path order: every record once, with its parents, below a root."""
    found = {record.path: record for record in records}
    for path in [*found]:
        for above in ("/", *ancestors_of(path)):
            found.setdefault(above, Record(above, b"", 0, 1, 1))
    found.setdefault("/", Record("/", b"", 0, 1, 1))
    return sorted(found.values(), key=lambda record: order_key(record.path))


TREES = st.lists(RECORDS, max_size=12).map(tree_of)


@settings(max_examples=60, deadline=None)
@given(RECORDS, ACLS, st.none() | st.integers(0, 2**64 - 1))
def test_any_record_comes_back(record: Record, acls: tuple, session: int | None) -> None:
    full = Record(
        record.path,
        record.value,
        record.native_version,
        record.created_ms,
        record.modified_ms,
        record.next_sequence,
        session,
        record.indexes,
        acls,
    )
    encoded = encode_record(full)
    assert list(decode_records("f", 0, encoded + encoded)) == [full, full]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_nodes_or_refused(data: bytes) -> None:
    try:
        records = list(decode_records("f", 0, data))
    except Corruption:
        return
    assert b"".join(map(encode_record, records)) == data


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_file_is_read_or_refused(data: st.DataObject) -> None:
    """Bytes of a real file, changed anywhere in any way, never come through as another tree."""

    async def main() -> None:
        disk = real_runtime().disk
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/x"
            tree = data.draw(TREES)
            await write_export(disk, path, ExportHeader("s", "/", 1), each(tree))
            content = bytearray(await disk.read(path))
            for _ in range(data.draw(st.integers(1, 3))):
                place = data.draw(st.integers(0, len(content)))
                content[place : place + data.draw(st.integers(0, 9))] = data.draw(
                    st.binary(max_size=9)
                )
            await disk.replace(path, bytes(content))
            try:
                file = await ExportFile.open(disk, path)
                assert [record async for record in file.records()] == tree
            except (Corruption, FormatError):
                return

    asyncio.run(main())


@pytest.mark.parametrize(("first", "second"), [*product(PLACES, PLACES)])
@settings(max_examples=6, deadline=None)
@given(TREES)
def test_any_tree_comes_through(first: str, second: str, tree: list[Record]) -> None:
    async def main() -> None:
        runtime = real_runtime()
        with tempfile.TemporaryDirectory() as folder:
            async with (
                empty_store(first, f"{folder}/first") as one,
                empty_store(second, f"{folder}/second") as two,
            ):
                path = f"{folder}/x"
                await write_export(runtime.disk, path, ExportHeader("s", "/", 1), each(tree))
                file = FileSource(await ExportFile.open(runtime.disk, path))
                options = CopyOptions(version_map=f"{folder}/map")
                into = await Copy(runtime, file, one, "one", Keeping(), options).run()
                source = StoreSource(one, "one", "/", Keeping())
                on = await Copy(runtime, source, two, "two", Keeping(), options).run()
                assert await records_of(one) == await records_of(two) == tree
                assert into.digest == on.digest
                assert into.verified
                assert on.verified

    asyncio.run(main())
