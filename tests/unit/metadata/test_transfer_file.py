"""Export files: what is in them, and that no damage passes unnoticed."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError, Corruption, FormatError, InputError
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.transfer import file_format
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader, Totalling
from anabranch.runtime.real import real_runtime

HEADER = ExportHeader("embedded:somewhere", "/", 1_700_000_000_000)
RECORDS = [
    Record("/", b"root", 3, 1, 2),
    Record("/a", b"", 0, 5, 6, next_sequence=12),
    Record("/a/b", bytes(range(40)), 10**6, 7, 8, indexes=(IndexKey("by", "ä"),)),
    Record("/a/e", b"mine", 0, 9, 9, session=77),
    Record("/r", b"secret", 1, 2, 3, access=(AccessRight(1, "digest", "u:x"),)),
]


async def each(records: Sequence[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


async def written(folder: Path, records: Sequence[Record] = RECORDS) -> Path:
    path = folder / "x.anabranch-metadata"
    await write_export(real_runtime().disk, str(path), HEADER, each(records))
    return path


async def read(path: Path) -> list[Record]:
    file = await ExportFile.open(real_runtime().disk, str(path))
    return [record async for record in file.records()]


@pytest.mark.goal("core.M8", part="file", broken_by="file_loses_acls")
@pytest.mark.goal("core.M13", part="file", broken_by="file_loses_acls")
async def test_everything_comes_back(tmp_path: Path) -> None:
    path = await written(tmp_path)
    file = await ExportFile.open(real_runtime().disk, str(path))
    assert file.header == HEADER
    assert await read(path) == RECORDS
    totals = await file.check()
    assert totals.digest.nodes == 4
    assert totals.digest.value_bytes == sum(len(r.value) for r in RECORDS if r.session is None)
    assert totals.ephemerals == 1


async def test_many_blocks(tmp_path: Path) -> None:
    value = b"x" * (limits.METADATA_EXPORT_BLOCK_BYTES_USUAL // 3)
    records = [Record(f"/{i:03}", value, i, 0, 0) for i in range(20)]
    records.append(Record("/big", b"y" * limits.METADATA_VALUE_BYTES_MAX, 0, 0, 0))
    assert await read(await written(tmp_path, records)) == records


@pytest.mark.goal("core.M8", part="file", broken_by="block_is_not_checked")
async def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = await written(tmp_path)
    content = path.read_bytes()
    for place in range(len(content)):
        for mask in (0x01, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= mask
            path.write_bytes(damaged)
            with pytest.raises((Corruption, FormatError)) as refused:
                await read(path)
            assert str(path) in str(refused.value)
            if isinstance(refused.value, Corruption):
                assert 12 <= refused.value.offset <= place, "named by the block that holds it"
    path.write_bytes(content)
    assert await read(path) == RECORDS


async def test_every_cut_is_noticed(tmp_path: Path) -> None:
    path = await written(tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises((Corruption, FormatError)):
            await read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(Corruption, match="after the end"):
        await read(path)


@pytest.mark.goal("core.M8", part="file", broken_by="end_is_not_checked")
async def test_lost_or_moved_blocks_are_noticed(tmp_path: Path) -> None:
    start = file_format.encode_start(HEADER)
    first = file_format.encode_record(RECORDS[0])
    one = file_format.encode_block(len(start), file_format.NODES_BLOCK, first)
    totalling = Totalling()
    totalling.add(RECORDS[0])
    totals = totalling.totals
    path = tmp_path / "x"
    path.write_bytes(start + one + file_format.encode_end(len(start) + len(one), totals))
    assert await read(path) == RECORDS[:1]
    path.write_bytes(start + file_format.encode_end(len(start), totals))
    with pytest.raises(Corruption, match="tells of 1 other nodes, the file holds 0"):
        await read(path)
    path.write_bytes(start + one + one)
    with pytest.raises(Corruption, match="checksum"):
        await read(path)


async def test_nodes_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Corruption, match="/a is out of place"):
        await read(await written(tmp_path, [Record("/b", b"", 0, 0, 0), RECORDS[1]]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a metadata export: it has 0 bytes"),
        (b"PK\x03\x04 something else", "not a metadata export: it begins with"),
        (b"ANBRMETA\x00\x00\x00\x02", "has format 2: this build knows 1"),
    ],
)
async def test_foreign_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=said):
        await ExportFile.open(real_runtime().disk, str(path))


async def test_no_file_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        await ExportFile.open(real_runtime().disk, f"{tmp_path}/none")
    with pytest.raises(AnabranchError, match="cannot write"):
        await write_export(real_runtime().disk, f"{tmp_path}/none/x", HEADER, each(RECORDS))


async def test_only_a_whole_file_has_its_name(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[Record]:
        yield RECORDS[0]
        raise InputError("the store went away")

    path = tmp_path / "x"
    with pytest.raises(InputError, match="went away"):
        await write_export(real_runtime().disk, str(path), HEADER, broken())
    assert await real_runtime().disk.list(str(tmp_path)) == []
    (tmp_path / "x.part").write_bytes(b"of an export that was killed")
    await write_export(real_runtime().disk, str(path), HEADER, each(RECORDS))
    assert await real_runtime().disk.list(str(tmp_path)) == ["x"]


async def test_a_file_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = await written(tmp_path)
    before = path.read_bytes()
    disk = real_runtime().disk
    with pytest.raises(InputError, match="exists already"):
        await write_export(disk, str(path), HEADER, each([]))
    assert path.read_bytes() == before
    await write_export(disk, str(path), HEADER, each([]), overwrite=True)
    assert await read(path) == []


async def test_access_rights_are_bounded(tmp_path: Path) -> None:
    right = AccessRight(31, "digest", "u:x")
    many = (right,) * (limits.METADATA_ACLS_PER_NODE_MAX + 1)
    long = (AccessRight(31, "digest", "u" * limits.METADATA_ACL_BYTES_MAX),)
    for wrong in (many, long):
        with pytest.raises(InputError, match="/r has"):
            await written(tmp_path, [RECORDS[4]._replace(access=wrong)])
    largest = (AccessRight(31, "x", "u" * (limits.METADATA_ACL_BYTES_MAX - 1)),)
    record = RECORDS[4]._replace(access=largest * limits.METADATA_ACLS_PER_NODE_MAX)
    assert await read(await written(tmp_path, [record])) == [record]
