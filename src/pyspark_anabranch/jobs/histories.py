"""Histories of `verify` as tables: one row per record, with what the rules ask for as columns.

Records about messages are columns; all others, of which there are few, are kept as they were
written. A row becomes the record again that the rules of `anabranch.verify` know.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from anabranch.errors import Corruption, FormatError
from anabranch.verify.history import Header, HistoryFolder
from anabranch.verify.record_lines import decode
from anabranch.verify.records import Delivery, Outcome, Place, Record, Send, Sent

SEND: Final = "send"
SENT: Final = "sent"
DELIVERY: Final = "recv"
SCHEMA: Final = (
    "k string, t double, p bigint, e bigint, s bigint, key string, crc bigint, r string, "
    "place array<bigint>, sub string, c string, text string, file int, line bigint"
)
"""`place` is partition, ledger, entry, batch; `text` is the whole line of a record that is about
no message; `file` and `line` say which of two records with one time came first."""
_FIELDS: Final = (
    "k string, t double, p bigint, e bigint, s bigint, key string, crc bigint, r string, "
    "id array<bigint>, sub string, c string, format string, broken string"
)
_ROW: Final = (1 << 33) - 1
"""Of the numbers that Spark gives to rows, the part that counts within a partition."""
_OF_MESSAGES: Final = (SEND, SENT, DELIVERY)


class History:
    """The records of one run, and what their headers say."""

    def __init__(self, rows: DataFrame, headers: Sequence[Header], files: Sequence[str]) -> None:
        self.rows = rows
        self.headers = headers
        self.files = files

    @property
    def dedup(self) -> bool:
        """Whether the broker was told to store each message once."""
        return any(header.dedup for header in self.headers)

    @property
    def missing_clients(self) -> list[str]:
        """Clients that should have left a history and did not."""
        present = {header.client for header in self.headers}
        wanted = {client for header in self.headers for client in header.clients}
        return sorted(wanted - present)


def read_histories(spark: SparkSession, folder: Path) -> History:
    """The histories that `anabranch verify run` left in a folder.

    Raises:
        NotFound: if there is no such folder.
        InputError: if it holds no histories, or those of several runs.
        FormatError: if a file is of another format or version.
        Corruption: if a line is damaged, with its place.
    """
    histories = HistoryFolder(folder)
    headers = [header for header in histories.headers if header is not None]
    files = [str(path) for path in histories.paths]
    # Java has a working folder and a default file system of its own.
    named = [f"file:{path.absolute()}" for path in histories.paths]
    text = spark.read.text(named, lineSep="\n").select(
        "value",
        f.col("_metadata.file_name").alias("name"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("at"),
    )
    for path in histories.paths:
        if path.name in histories.torn_files():
            # What was never finished does not count.
            text = text.where((f.col("name") != _escaped(path)) | (f.col("value") != _tail(path)))
    numbers = f.create_map(
        *(part for number, path in enumerate(histories.paths) for part in _numbered(path, number))
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    parsed = text.select(
        f.from_json("value", _FIELDS, options).alias("j"), "value", "name", "block", "at"
    )
    _refuse_damaged(parsed)
    of_message = f.col("j.k").isin(*_OF_MESSAGES)
    rows = parsed.where(f.col("j.format").isNull()).select(
        *(f.col(f"j.{name}").alias(name) for name in ("k", "t", "p", "e", "s", "key", "crc", "r")),
        f.when(of_message, f.col("j.id")).alias("place"),
        f.col("j.sub").alias("sub"),
        f.col("j.c").alias("c"),
        f.when(~of_message, f.col("value")).alias("text"),
        numbers[f.col("name")].alias("file"),
        # The number of a row within its piece of the file is less than the piece has bytes.
        (f.col("block") + f.col("at").bitwiseAND(_ROW)).alias("line"),
    )
    return History(rows, headers, files)


def _escaped(path: Path) -> Column:
    return f.lit(path.name)


def _numbered(path: Path, number: int) -> tuple[Column, Column]:
    return _escaped(path), f.lit(number)


def _tail(path: Path) -> str:
    return path.read_bytes().rpartition(b"\n")[2].decode(errors="replace")


def _refuse_damaged(parsed: DataFrame) -> None:
    unknown = f.col("j.k").isNull() & f.col("j.format").isNull()
    nameless = f.col("j.k").isin(*_OF_MESSAGES) & (
        f.col("j.p").isNull() | f.col("j.e").isNull() | f.col("j.s").isNull()
    )
    damaged = parsed.where(unknown | f.col("j.t").isNull() & f.col("j.format").isNull() | nameless)
    for row in damaged.select("name", "value").take(1):
        try:
            decode(row["value"].encode())
        except FormatError as error:
            raise Corruption(row["name"], 0, str(error)) from None
        raise Corruption(row["name"], 0, f"not a record: {row['value'][:120]!r}")


def record_of(row: Any) -> Record:
    """The record that a row was made of."""
    if row["text"] is not None:
        return decode(row["text"].encode())
    place = None if row["place"] is None else Place(*row["place"])
    message = (row["p"], row["e"], row["s"])
    if row["k"] == SEND:
        return Send(*message, row["key"], row["crc"], row["t"])
    if row["k"] == SENT:
        return Sent(*message, Outcome(row["r"]), place, "", row["t"])
    assert place is not None, "a delivery has a place"
    return Delivery(row["sub"], row["c"] or "", *message, row["key"], row["crc"], place, row["t"])
