"""History files: one append-only file of JSON lines per client process.

The first line is the header with the format version, the run and the client. Lines are stamped by
the writer under its lock, so that time never goes back within a file. What was flushed survives
the death of the process; what was not is its torn or missing tail, and the rules are sound for
that: `send` lines are flushed before the library gets the message, and deliveries before their
acknowledgement. Nothing here goes through the system that is being judged.
"""

import heapq
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from anabranch.errors import AlreadyClosed, Corruption, FormatError, InputError, NotFound
from anabranch.verify.limits import HISTORY_LINE_BYTES_MAX
from anabranch.verify.record_lines import decode, encode
from anabranch.verify.records import End, Record

FORMAT: Final = "anabranch-history"
VERSION: Final = 2
SUFFIX: Final = ".history.jsonl"


@dataclass(frozen=True, slots=True)
class Header:
    """Whose history this is."""

    run: str
    client: str
    host: str
    topic: str
    dedup: bool = False
    """The broker was told to store each (producer, seq) once."""
    ack_lag_s: float = 0.0
    """How old a confirmed acknowledgement may be that a crash of the owner undoes."""
    clients: tuple[str, ...] = ()
    """In the coordinator's file: every client that must have left a history."""
    settings: dict[str, Any] = field(default_factory=dict)
    """For the reader: what was run. No rule looks at it."""

    def line(self) -> bytes:
        """The first line of the file."""
        fields = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes, *, source: str) -> "Header":
        """Read the first line.

        Raises:
            FormatError: if the file is no history, or one of an unknown version.
        """
        try:
            fields = json.loads(line)
            found = fields.pop("format", None), fields.pop("version", None)
        except (ValueError, AttributeError, TypeError):
            raise FormatError(f"{source} is no history: its first line is no header") from None
        if found != (FORMAT, VERSION):
            raise FormatError(
                f"{source} has format {found[0]!r} version {found[1]!r}; "
                f"this build reads {FORMAT!r} version {VERSION}"
            )
        try:
            return cls(**{**fields, "clients": tuple(fields.get("clients", ()))})
        except TypeError as error:
            raise FormatError(f"{source} has a damaged header: {error}") from None


class HistoryWriter:
    """Appends records from any thread; a record counts only once it was flushed."""

    def __init__(self, path: Path, header: Header, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: list[bytes] = []
        try:
            self._file: BinaryIO | None = path.open("xb", buffering=0)
        except FileExistsError:
            raise InputError(f"{path} exists: a history is never continued") from None
        self._file.write(header.line())

    def append(self, record: Record) -> None:
        """Stamp a record with the time and keep it for the next flush."""
        with self._lock:
            if self._file is None:
                raise AlreadyClosed("the history was closed before this record")
            self._pending.append(encode(record._replace(t=round(self._clock(), 6))))

    def flush(self) -> None:
        """Hand everything appended so far to the operating system."""
        with self._lock:
            self._write_pending()

    def _write_pending(self) -> None:
        if self._file is None or not self._pending:
            return
        rest = memoryview(b"".join(self._pending))
        self._pending.clear()
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        """Write the end record and close; records that come later are refused."""
        with self._lock:
            if self._file is None:
                return
            self._pending.append(encode(End(round(self._clock(), 6))))
            self._write_pending()
            self._file.close()
            self._file = None


class Located(NamedTuple):
    """A record and where it stands. Compares by time, then file, then line."""

    t: float
    file: int
    line: int
    record: Record


class HistoryTail:
    """Reads a history that may still be growing, whole lines only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: Header | None = None
        self.line = 0
        self.offset = 0
        self._time = float("-inf")

    def poll(self) -> Iterator[tuple[int, Record]]:
        """Yield the records, with their line numbers, that were completed since the last poll.

        Raises:
            FormatError: if the file is of another format or version.
            Corruption: if a line in it is damaged, with its place.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while True:
                line = file.readline(HISTORY_LINE_BYTES_MAX)
                if not line.endswith(b"\n"):
                    if len(line) == HISTORY_LINE_BYTES_MAX:
                        raise self._damaged(f"line longer than {HISTORY_LINE_BYTES_MAX} bytes")
                    return
                self.line += 1
                if self.header is None:
                    self.header = Header.parse(line, source=str(self.path))
                    self.offset += len(line)
                else:
                    record = self._parse(line)
                    self.offset += len(line)
                    yield self.line, record

    def _parse(self, line: bytes) -> Record:
        try:
            record = decode(line)
        except FormatError as error:
            raise self._damaged(str(error)) from None
        if record.t < self._time:
            raise self._damaged(f"time goes back from {self._time} to {record.t}")
        self._time = record.t
        return record

    def _damaged(self, detail: str) -> Corruption:
        return Corruption(str(self.path), self.offset, f"line {self.line}: {detail}")


class HistoryFolder:
    """All histories of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}")
        self.paths: Sequence[Path] = sorted(folder.glob(f"*{SUFFIX}"))
        if not self.paths:
            raise InputError(f"{folder} holds no histories (files named *{SUFFIX})")
        self._tails: Sequence[HistoryTail] = ()
        self.headers: Sequence[Header | None] = [_read_header(path) for path in self.paths]
        known = [header for header in self.headers if header is not None]
        for name in ("run", "host", "dedup", "ack_lag_s"):
            values = sorted({str(getattr(header, name)) for header in known})
            if len(values) > 1:
                raise InputError(
                    f"{folder} mixes histories with different {name}: {', '.join(values)}"
                )

    def merged(self) -> Iterator[Located]:
        """Yield every record of every file in the order of time."""
        self._tails = [HistoryTail(path) for path in self.paths]
        return heapq.merge(*(self._located(index) for index in range(len(self.paths))))

    def _located(self, index: int) -> Iterator[Located]:
        for line, record in self._tails[index].poll():
            yield Located(record.t, index, line, record)

    def share_read(self) -> float:
        """How much of the files the last `merged` has read, from 0 to 1."""
        size = sum(path.stat().st_size for path in self.paths)
        return sum(tail.offset for tail in self._tails) / size if size else 1.0

    def torn_files(self) -> list[str]:
        """Return the names of the files whose last line was never finished."""
        return [path.name for path in self.paths if _has_torn_tail(path)]


def _read_header(path: Path) -> Header | None:
    with path.open("rb") as file:
        line = file.readline(HISTORY_LINE_BYTES_MAX)
    # A client that died while it wrote its header has done nothing else yet.
    return Header.parse(line, source=str(path)) if line.endswith(b"\n") else None


def _has_torn_tail(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return size == 0 or file.read(1) != b"\n"
