"""A history of any length, made by Spark itself row by row, with faults at known places."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.testing.made_histories import RUN
from anabranch.verify.history import SUFFIX, Header
from anabranch.verify.record_lines import encode
from anabranch.verify.records import Drained, End, Record, Subscribed, SubscriptionType
from pyspark_anabranch.jobs.histories import SCHEMA, History, record_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCERS: Final = 4
KEYS: Final = 10_000
_STEP_S: Final = 1e-6
_LEDGER_ENTRIES: Final = 50_000
_SUBSCRIPTION: Final = "all"

assert KEYS % PRODUCERS == 0, "all messages of a key are of one producer"


@dataclass(frozen=True, slots=True)
class Faults:
    """Numbers of messages that something happens to."""

    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    late: tuple[int, ...]
    """Delivered after the next message of their key."""


def spread(messages: int) -> Faults:
    """Seven lost, five doubled and three late messages, all over a history."""
    at = [(2 * number + 1) * (messages - KEYS) // 31 for number in range(15)]
    return Faults(tuple(at[:7]), tuple(at[7:12]), tuple(at[12:]))


def made_history(spark: "SparkSession", messages: int, faults: Faults, partitions: int) -> History:
    """Three records of each message, its send, its receipt and its delivery, and a few others."""
    twice = _any(faults.doubled)
    each = spark.range(0, messages, 1, partitions).selectExpr(
        "id",
        f"explode(if({twice}, array(0, 1, 2, 3), array(0, 1, 2))) kind",
    )
    since_s = f"1 + id * {_STEP_S}D"
    late = f"if({_any(faults.late)}, {KEYS + 0.5} * {_STEP_S}D, 0D)"
    rows = each.where(f"kind < 2 or not {_any(faults.lost)}").selectExpr(
        "element_at(array('send', 'sent', 'recv', 'recv'), kind + 1) k",
        f"{since_s} + kind * 1e-7D + if(kind >= 2, {late}, 0D) t",
        f"id % {PRODUCERS} p",
        "0L e",
        f"id div {PRODUCERS} s",
        f"if(kind = 1, null, concat('k', id % {KEYS})) key",
        "if(kind = 1, null, id & 4294967295L) crc",
        "if(kind = 1, 'ok', null) r",
        f"if(kind = 0, null, array(-1L, id div {_LEDGER_ENTRIES}, "
        f"if(kind = 3, {_LEDGER_ENTRIES}L, 0L) + id % {_LEDGER_ENTRIES}, -1L)) place",
        f"if(kind >= 2, '{_SUBSCRIPTION}', null) sub",
        "if(kind >= 2, 'made', null) c",
        "cast(null as string) text",
        "0 file",
        "id line",
    )
    end_s = 2 + (messages + KEYS) * _STEP_S
    few: list[tuple[str, Record]] = [
        ("sub", Subscribed(_SUBSCRIPTION, "made", SubscriptionType.EXCLUSIVE, 0.5)),
        ("drained", Drained(_SUBSCRIPTION, "made", end_s)),
        ("end", End(end_s)),
    ]
    others = [
        (kind, record.t, *[None] * 9, encode(record).decode().strip(), 1, number)
        for number, (kind, record) in enumerate(few)
    ]
    header = Header(run=RUN, client="made", host="made", topic="made", dedup=True)
    return History(rows.unionByName(spark.createDataFrame(others, SCHEMA)), [header], [])


def _any(numbers: tuple[int, ...]) -> str:
    return f"id in ({', '.join(map(str, numbers))})" if numbers else "false"


def written_history(history: History, folder: Path) -> None:
    """The same history as a file, as a run leaves it: its records in the order of their time."""
    (header,) = history.headers
    rows = history.rows.orderBy("t", "file", "line").toLocalIterator(prefetchPartitions=True)
    with (folder / f"{header.client}{SUFFIX}").open("wb") as file:
        file.write(header.line())
        file.writelines(encode(record_of(row)) for row in rows)
