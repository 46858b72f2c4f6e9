"""History files: what was flushed survives the writer, and damage is told from a torn tail."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import AlreadyClosed, Corruption, FormatError, InputError, NotFound
from anabranch.testing.made_histories import (
    ORDERED,
    RUN,
    delivered,
    outcome,
    receipt,
    sent,
    stamped,
    subscribed,
    write_history,
)
from anabranch.verify.history import SUFFIX, Header, HistoryFolder, HistoryTail, HistoryWriter
from anabranch.verify.record_lines import decode, encode
from anabranch.verify.records import (
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Drained,
    End,
    Event,
    Outcome,
    Place,
    Record,
)

HEADER = Header(run=RUN, client="c", host="made", topic="made", settings={"seed": 1})
ONE_OF_EACH: list[Record] = [
    subscribed(),
    sent(1, key='"ä\n'),
    receipt(1),
    sent(2),
    outcome(2, Outcome.FAIL),
    delivered(1),
    Damaged(ORDERED, "c", Place(-1, 2, 3, -1), "bad"),
    Ack(ORDERED, "c", AckKind.CUMULATIVE, Outcome.UNKNOWN, (Place(-1, 1, 1, -1),)),
    CursorAt(ORDERED, Place(-1, 1, 0, -1), 0.5),
    Event("redelivery-asked", "c", sub=ORDERED),
    Event("paused"),
    Event("connection-lost", "c", 7),
    Drained(ORDERED, "made"),
    End(),
]


def writer(path: Path) -> HistoryWriter:
    ticks = itertools.count(1)
    return HistoryWriter(path, HEADER, lambda: float(next(ticks)))


def read(path: Path) -> list[Record]:
    return [record for _, record in HistoryTail(path).poll()]


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_records_are_read_as_written(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == record


def test_keys_on_disk_never_change() -> None:
    assert encode(sent(1)._replace(t=1.5, crc=9)) == (
        b'{"k":"send","t":1.5,"p":0,"e":0,"s":1,"key":"k","crc":9}\n'
    )
    assert (
        encode(receipt(1)) == b'{"k":"sent","t":0.0,"p":0,"e":0,"s":1,"r":"ok","id":[-1,1,1,-1]}\n'
    )
    assert encode(delivered(1)._replace(crc=9)) == (
        b'{"k":"recv","t":0.0,"sub":"ordered","c":"ordered-consumer",'
        b'"p":0,"e":0,"s":1,"key":"k","crc":9,"id":[-1,1,1,-1]}\n'
    )
    assert HEADER.line() == (
        b'{"format":"anabranch-history","version":2,"run":"00112233445566ff","client":"c",'
        b'"host":"made","topic":"made","dedup":false,"ack_lag_s":0.0,"clients":[],"settings":{"seed":1}}\n'
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b'{"k":"send"}',
        b'{"k":"new","t":1}',
        b'{"k":["x"],"t":1}',
        b'{"k":"end","t":"soon"}',
        b'{"k":"end","t":true}',
        b'{"k":"send","t":1,"p":-1,"e":0,"s":1,"key":"k","crc":9}',
        b'{"k":"send","t":1,"p":0,"e":0,"s":1.5,"key":"k","crc":9}',
        b'{"k":"send","t":1,"p":0,"e":0,"s":1,"key":3,"crc":9}',
        b'{"k":"send","t":1,"p":0,"e":0,"s":1,"key":"k","crc":4294967296}',
        b'{"k":"sent","t":1,"p":0,"e":0,"s":1,"r":"maybe"}',
        b'{"k":"sent","t":1,"p":0,"e":0,"s":1,"r":"ok","id":[1,2,3]}',
        b'{"k":"sent","t":1,"p":0,"e":0,"s":1,"r":"ok","id":[1,2,3,"x"]}',
        b'{"k":"sub","t":1,"sub":"s","c":"c","type":"odd"}',
        b"\xff\xfe",
    ],
)
def test_wrong_record_is_refused_by_name(line: bytes) -> None:
    with pytest.raises(FormatError, match="record"):
        decode(line)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(line: bytes) -> None:
    try:
        record = decode(line)
    except FormatError:
        return
    assert decode(encode(record)) == record


def test_writer_stamps_and_ends(tmp_path: Path) -> None:
    path = tmp_path / f"c{SUFFIX}"
    history = writer(path)
    for record in ONE_OF_EACH[:-1]:
        history.append(record)
    assert read(path) == [], "nothing counts before it was flushed"
    history.flush()
    history.flush()
    history.close()
    history.close()
    found = read(path)
    assert [record._replace(t=0.0) for record in found] == [r._replace(t=0.0) for r in ONE_OF_EACH]
    assert [record.t for record in found] == [float(n) for n in range(1, len(found) + 1)]
    with pytest.raises(AlreadyClosed):
        history.append(End())


def test_history_is_never_continued(tmp_path: Path) -> None:
    path = tmp_path / f"c{SUFFIX}"
    writer(path).close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="never continued"):
        writer(path)
    assert path.read_bytes() == before


def test_killed_writer_loses_only_what_it_had_not_flushed(tmp_path: Path) -> None:
    path = tmp_path / f"c{SUFFIX}"
    script = f"""
import os, signal, time
from pathlib import Path
from anabranch.verify.history import Header, HistoryWriter
from anabranch.verify.records import Event
history = HistoryWriter(Path({str(path)!r}), Header("{RUN}", "c", "made", "made"), time.monotonic)
for index in range(100):
    history.append(Event(str(index)))
history.flush()
history.append(Event("lost"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ)
    assert child.returncode == -signal.SIGKILL
    names = [record.name for record in read(path) if isinstance(record, Event)]
    assert names == [str(index) for index in range(100)]
    assert HistoryFolder(tmp_path).torn_files() == []


def test_torn_last_line_is_dropped_at_every_cut(tmp_path: Path) -> None:
    path = write_history(tmp_path, "c", ONE_OF_EACH)
    whole = path.read_bytes()
    expected = stamped(ONE_OF_EACH)
    start = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        assert read(path) == expected[:-1]
        assert bool(HistoryFolder(tmp_path).torn_files()) is (length > start)


def test_torn_header_means_a_client_that_did_nothing(tmp_path: Path) -> None:
    write_history(tmp_path, "whole", ONE_OF_EACH)
    path = tmp_path / f"dead{SUFFIX}"
    for content in (b"", HEADER.line()[:20]):
        path.write_bytes(content)
        folder = HistoryFolder(tmp_path)
        assert folder.torn_files() == [path.name]
        assert len(list(folder.merged())) == len(ONE_OF_EACH)


def test_damage_before_the_last_line_names_its_place(tmp_path: Path) -> None:
    path = write_history(tmp_path, "c", ONE_OF_EACH)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b'{"k":"se\n', *lines[3:]]))
    offset = sum(map(len, lines[:3]))
    with pytest.raises(Corruption, match=rf"byte {offset}: line 4") as caught:
        read(path)
    assert caught.value.offset == offset


def test_time_that_goes_back_is_damage(tmp_path: Path) -> None:
    path = tmp_path / f"c{SUFFIX}"
    lines = [encode(Event("a", t=2.0)), encode(Event("b", t=1.0))]
    path.write_bytes(HEADER.line() + b"".join(lines))
    with pytest.raises(Corruption, match="time goes back"):
        read(path)


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (b'{"format":"anabranch-history","version":1}\n', "version 1"),
        (b'{"format":"other","version":1}\n', "format 'other'"),
        (b"hello\n", "no header"),
        (b"[]\n", "no header"),
        (b'{"format":"anabranch-history","version":2,"run":"x"}\n', "damaged header"),
    ],
)
def test_unknown_format_is_refused_by_name(tmp_path: Path, first: bytes, complaint: str) -> None:
    (tmp_path / f"c{SUFFIX}").write_bytes(first)
    with pytest.raises(FormatError, match=complaint):
        HistoryFolder(tmp_path)


def test_overlong_line_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write_history(tmp_path, "c", [])
    with path.open("ab") as file:
        file.write(b"x" * (2 << 20))
    with pytest.raises(Corruption, match="longer than"):
        read(path)


def test_tail_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / f"c{SUFFIX}"
    history = writer(path)
    tail = HistoryTail(path)
    seen: list[tuple[int, str]] = []
    for name in ("a", "b", "c"):
        history.append(Event(name))
        history.flush()
        seen += [(line, record.name) for line, record in tail.poll() if isinstance(record, Event)]
    history.close()
    assert seen == [(2, "a"), (3, "b"), (4, "c")]


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    for client, begin in (("x", 1.0), ("y", 0.5)):
        events = [encode(Event(client, t=begin + step)) for step in range(3)]
        header = Header(RUN, client, "made", "made").line()
        (tmp_path / f"{client}{SUFFIX}").write_bytes(header + b"".join(events))
    names = [located.record.name for located in HistoryFolder(tmp_path).merged()]  # type: ignore[union-attr]
    assert "".join(names) == "yxyxyx"


def test_folder_must_hold_the_histories_of_one_run(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        HistoryFolder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no histories"):
        HistoryFolder(tmp_path)
    write_history(tmp_path, "a", [])
    other = Header(run="f" * 16, client="b", host="made", topic="made")
    write_history(tmp_path, "b", [], header=other)
    with pytest.raises(InputError, match="different run"):
        HistoryFolder(tmp_path)
