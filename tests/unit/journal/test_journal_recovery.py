"""What recovery makes of damaged journals: a torn tail is cut, anything else is reported."""

import asyncio
import shutil
from pathlib import Path

import pytest

from anabranch.errors import Corruption, FormatError
from anabranch.journal import Journal, RecordPlace
from anabranch.journal.format import HEADER_BYTES, MARK_BYTES, RECORD_HEADER_BYTES, encode_header
from anabranch.limits import JOURNAL_IDLE_MARK_S, JOURNAL_RECORD_BYTES_MAX
from anabranch.runtime.real_disk import RealDisk

KIND = b"test"
SEGMENT = "000000000001.journal"
DISK = RealDisk()


async def open_journal(
    folder: Path, *, segment_bytes: int = 1 << 20
) -> tuple[Journal, list[bytes]]:
    payloads: list[bytes] = []

    def replay(_: RecordPlace, payload: memoryview) -> None:
        payloads.append(bytes(payload))

    journal = await Journal.open(
        DISK, str(folder), kind=KIND, segment_bytes=segment_bytes, replay=replay
    )
    return journal, payloads


async def append_group(journal: Journal, *payloads: bytes) -> list[RecordPlace]:
    done = asyncio.Event()
    places = [journal.append([payload], lambda _: done.set()) for payload in payloads]
    await done.wait()
    return places


async def recovered(folder: Path, *, segment_bytes: int = 1 << 20) -> list[bytes]:
    journal, payloads = await open_journal(folder, segment_bytes=segment_bytes)
    await journal.close()
    return payloads


async def recovered_or_refused(folder: Path) -> list[bytes] | Corruption | FormatError:
    try:
        return await recovered(folder)
    except (Corruption, FormatError) as error:
        return error


def variant(source: Path, folder: Path, content: bytes, name: str = SEGMENT) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    (folder / name).write_bytes(content)
    return folder


async def test_a_tail_cut_at_any_byte_leaves_the_records_before_it(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path / "whole")
    payloads = [b"first", b"second", b"3", b"the fourth"]
    ends = []
    for payload in payloads:
        (place,) = await append_group(journal, payload)
        ends.append(place.offset + 8 + place.length)
    await journal.close()
    content = (tmp_path / "whole" / SEGMENT).read_bytes()
    for cut in range(len(content) + 1):
        folder = variant(tmp_path / "whole", tmp_path / "cut", content[:cut])
        expected = [p for p, end in zip(payloads, ends, strict=True) if end <= cut]
        assert await recovered(folder) == expected, f"cut at {cut}"
        if cut % 7 == 0:
            assert await recovered(folder) == expected, f"cut at {cut}, second life"


async def test_a_cut_journal_goes_on_where_the_intact_part_ends(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path)
    await append_group(journal, b"kept")
    (torn,) = await append_group(journal, b"torn away")
    await journal.close()
    file = tmp_path / SEGMENT
    file.write_bytes(file.read_bytes()[: torn.offset + 12])
    journal, payloads = await open_journal(tmp_path)
    assert payloads == [b"kept"]
    await append_group(journal, b"after")
    await journal.close()
    assert await recovered(tmp_path) == [b"kept", b"after"]


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
async def test_a_flipped_byte_anywhere_is_reported_with_its_place(
    tmp_path: Path, flip: int
) -> None:
    journal, _ = await open_journal(tmp_path / "whole")
    payloads = [b"first", b"second", b"3", b"the fourth", b"the last one"]
    await append_group(journal, *payloads[:2])
    await append_group(journal, *payloads[2:])
    await journal.close()
    content = (tmp_path / "whole" / SEGMENT).read_bytes()
    unnoticed = []
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= flip
        folder = variant(tmp_path / "whole", tmp_path / "flipped", damaged)
        found = await recovered_or_refused(folder)
        if isinstance(found, Corruption):
            assert found.file == str(folder / SEGMENT)
            assert found.offset <= at < found.offset + 64
        elif isinstance(found, FormatError):
            assert at < HEADER_BYTES
            assert SEGMENT in str(found)
        else:
            assert found == payloads
            unnoticed.append(at)
    # Only the mark that ends the journal may be damaged without being missed.
    assert unnoticed == list(range(len(content) - MARK_BYTES, len(content)))


async def test_a_group_torn_in_its_middle_is_a_tail(tmp_path: Path) -> None:
    """Sectors of one unsynced write may reach the disk in any order."""
    journal, _ = await open_journal(tmp_path / "live")
    await append_group(journal, b"acknowledged")
    places = await append_group(journal, b"a" * 600, b"b" * 600, b"c" * 600)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "live", crashed)
    await journal.close()
    content = bytearray((crashed / SEGMENT).read_bytes())
    content[places[1].offset + 100 : places[1].offset + 300] = bytes(200)
    (crashed / SEGMENT).write_bytes(content)
    assert await recovered(crashed) == [b"acknowledged", b"a" * 600]
    assert await recovered(crashed) == [b"acknowledged", b"a" * 600]


async def test_an_idle_journal_notes_that_its_last_group_is_durable(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path / "live")
    (place,) = await append_group(journal, b"acknowledged long ago")
    segment = tmp_path / "live" / SEGMENT
    unmarked = segment.read_bytes()
    async with asyncio.timeout(30):
        while segment.read_bytes() == unmarked:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "live", crashed)
    await journal.close()
    content = bytearray((crashed / SEGMENT).read_bytes())
    content[place.offset + 10] ^= 1
    (crashed / SEGMENT).write_bytes(content)
    with pytest.raises(Corruption, match=f"at byte {place.offset}: a record fails its checksum"):
        await recovered(crashed)


async def test_damage_before_a_later_segment_is_no_tail(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path, segment_bytes=200)
    (place,) = await append_group(journal, b"x" * 300)
    await append_group(journal, b"y" * 300)
    await journal.close()
    file = tmp_path / SEGMENT
    content = bytearray(file.read_bytes())
    for damaged in (content[: place.offset + 20], content[: place.offset]):
        file.write_bytes(damaged)
        with pytest.raises(Corruption, match=f"{SEGMENT} at byte {place.offset}"):
            await recovered(tmp_path, segment_bytes=200)


async def test_a_segment_lost_in_the_middle_is_reported(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path, segment_bytes=200)
    for letter in (b"x", b"y", b"z"):
        await append_group(journal, letter * 300)
    await journal.close()
    (tmp_path / "000000000002.journal").unlink()
    with pytest.raises(Corruption, match=r"000000000002\.journal at byte 0: .* missing"):
        await recovered(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(10), encode_header(KIND, 2)[:9], bytes(26)])
async def test_a_segment_that_was_being_made_is_made_again(tmp_path: Path, content: bytes) -> None:
    journal, _ = await open_journal(tmp_path)
    await append_group(journal, b"before")
    await journal.close()
    (tmp_path / "000000000002.journal").write_bytes(content)
    journal, payloads = await open_journal(tmp_path, segment_bytes=220)
    assert payloads == [b"before"]
    await append_group(journal, b"x" * 100)
    (place,) = await append_group(journal, b"y")
    assert place.segment == 2
    await journal.close()
    assert await recovered(tmp_path) == [b"before", b"x" * 100, b"y"]


async def test_garbage_longer_than_one_write_is_no_tail(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path)
    await append_group(journal, b"before")
    await journal.close()
    with (tmp_path / SEGMENT).open("ab") as file:
        file.write(b"\x07" * (17 << 20))
    with pytest.raises(Corruption, match="more than a crash can tear"):
        await recovered(tmp_path)


async def test_largest_write_may_be_torn_together_with_the_mark_before_it(tmp_path: Path) -> None:
    """The mark of an idle journal is not synced until the next write is."""
    journal, _ = await open_journal(tmp_path, segment_bytes=64 << 20)
    await append_group(journal, b"before")
    await asyncio.sleep(JOURNAL_IDLE_MARK_S * 3)
    file = tmp_path / SEGMENT
    marked = file.stat().st_size
    await append_group(journal, bytes(JOURNAL_RECORD_BYTES_MAX))
    await journal.close()
    # Nothing but zeros came to the disk of either write, and the closing mark never did.
    last = marked + MARK_BYTES + RECORD_HEADER_BYTES + JOURNAL_RECORD_BYTES_MAX
    content = file.read_bytes()[: marked - MARK_BYTES]
    file.write_bytes(content + bytes(last - len(content)))
    assert await recovered(tmp_path) == [b"before"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("notes.txt", b"shopping list", r"notes\.txt is not a journal segment"),
        ("1.journal", b"", r"1\.journal is not a journal segment"),
        (SEGMENT, b"PK\x03\x04 something else entirely", "is not a journal segment"),
        (SEGMENT, b"PK", "is not a journal segment"),
        (SEGMENT, encode_header(b"othr", 1), "kind b'othr', wanted b'test'"),
        (
            SEGMENT,
            encode_header(KIND, 1)[:8] + b"\x00\x09" + encode_header(KIND, 1)[10:],
            "format version 9; this build reads 1 and 2",
        ),
    ],
    ids=["foreign-name", "odd-number", "foreign-content", "short", "other-kind", "version"],
)
async def test_what_is_not_ours_is_refused_and_left_alone(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=says):
        await recovered(tmp_path)
    assert (tmp_path / name).read_bytes() == content
    assert await DISK.list(str(tmp_path)) == [name]


async def test_a_renamed_segment_is_reported(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path)
    await append_group(journal, b"x")
    await journal.close()
    (tmp_path / SEGMENT).rename(tmp_path / "000000000007.journal")
    with pytest.raises(Corruption, match="the header says segment 1"):
        await recovered(tmp_path)


async def test_damage_found_while_reading_is_reported_and_not_served(tmp_path: Path) -> None:
    journal, _ = await open_journal(tmp_path)
    good, bad = await append_group(journal, b"good", b"will be damaged")
    file = tmp_path / SEGMENT
    content = bytearray(file.read_bytes())
    content[bad.offset + 9] ^= 0x10
    file.write_bytes(content)
    assert await journal.read_run([good]) == [b"good"]
    with pytest.raises(Corruption, match=f"at byte {bad.offset}"):
        await journal.read_run([bad])
    await journal.close()
