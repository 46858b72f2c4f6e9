"""Finds the few parts of a history that need the rules' full attention, by arithmetic.

The sends of a producer are cut into blocks of neighbours. A block needs no second look if each of
its messages was sent once and acknowledged once, and every subscription got exactly these messages
at exactly these places: both are seen by counts and by the exclusive or of hashes, without bringing
the records of a message together. A message that is missing changes the exclusive or; one that came
more often changes the count.

The deliveries of a key need no second look if none has a lower number than one before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pyspark_anabranch.jobs.histories import DELIVERY, SEND, SENT

_BLOCK_BITS: Final = 12
_LAST: Final = (1 << _BLOCK_BITS) - 1
BLOCK_KEYS: Final = ("p", "e", "block")


@dataclass(frozen=True, slots=True)
class KnownSubscription:
    """A subscription of a run."""

    name: str
    since: float
    is_ordered: bool


def block_of(seq: Column) -> Column:
    """Which block a sequence number is in."""
    return f.shiftright(seq, _BLOCK_BITS)


def blocks(rows: DataFrame, subscriptions: Sequence[KnownSubscription]) -> DataFrame:
    """One row per block: what it holds, and whether that can be believed without a second look."""
    is_send, is_sent = f.col("k") == SEND, f.col("k") == SENT
    is_ok = is_sent & (f.col("r") == "ok") & f.col("place").isNotNull()
    within = f.col("s").bitwiseAND(_LAST)
    content, stored = f.xxhash64("s", "crc"), f.xxhash64("s", "place")
    columns = [
        f.count_if(is_send).alias("sends"),
        f.count_if(is_sent).alias("outcomes"),
        f.count_if(is_ok).alias("oks"),
        f.min(f.when(is_send, within)).alias("low"),
        f.max(f.when(is_send, within)).alias("high"),
        f.min(f.when(is_send, f.col("t"))).alias("begun"),
        *(_power_sum(is_send, within, power).alias(f"sum_{power}") for power in (1, 2, 3)),
        f.bit_xor(f.when(is_send, content)).alias("sent_content"),
        f.bit_xor(f.when(is_ok, stored)).alias("sent_places"),
    ]
    for number, subscription in enumerate(subscriptions):
        got = (f.col("k") == DELIVERY) & (f.col("sub") == subscription.name)
        columns += [
            f.count_if(got).alias(f"got_{number}"),
            f.bit_xor(f.when(got, content)).alias(f"content_{number}"),
            f.bit_xor(f.when(got, stored)).alias(f"places_{number}"),
        ]
    of_messages = rows.where(f.col("k").isin(SEND, SENT, DELIVERY))
    grouped = of_messages.groupBy("p", "e", block_of(f.col("s")).alias("block")).agg(*columns)
    return grouped.withColumn("clean", f.coalesce(_is_clean(subscriptions), f.lit(False)))


def _power_sum(wanted: Column, value: Column, power: int) -> Column:
    product = value
    for _ in range(power - 1):
        product = product * value
    return f.sum(f.when(wanted, product))


def _is_clean(subscriptions: Sequence[KnownSubscription]) -> Column:
    count = f.col("sends")
    clean = (
        (count > 0)
        & (f.col("outcomes") == count)
        & (f.col("oks") == count)
        & (f.col("high") - f.col("low") + 1 == count)
    )
    for power in (1, 2, 3):
        whole = _sum_to(f.col("high"), power) - _sum_to(f.col("low") - 1, power)
        clean &= f.col(f"sum_{power}") == whole
    for number, subscription in enumerate(subscriptions):
        clean &= (
            (f.col("begun") >= subscription.since)
            & (f.col(f"got_{number}") == count)
            & (f.col(f"content_{number}") == f.col("sent_content"))
            & (f.col(f"places_{number}") == f.col("sent_places"))
        )
    return clean


def _sum_to(last: Column, power: int) -> Column:
    """1 + 2^power + ... + last^power."""
    pairs = last * (last + 1)
    if power == 1:
        return f.floor(pairs / 2)
    if power == 2:
        return f.floor(pairs * (2 * last + 1) / 6)
    return f.floor(pairs / 2) * f.floor(pairs / 2)


def key_group() -> Column:
    """Deliveries of one producer and key to one subscription; without a key, of one partition.

    Two groups with one hash look like one. That can make them doubtful, never let them pass.
    """
    keyless = f.coalesce(f.col("key"), f.lit("")) == ""
    partition = f.when(keyless, f.col("place")[0])
    return f.xxhash64("sub", "p", "e", "key", partition)


def doubtful_groups(rows: DataFrame, subscriptions: Sequence[KnownSubscription]) -> DataFrame:
    """The groups of deliveries in which a number comes after a higher one, in column `group`."""
    ordered = [subscription.name for subscription in subscriptions if subscription.is_ordered]
    deliveries = rows.where((f.col("k") == DELIVERY) & f.col("sub").isin(ordered)).select(
        key_group().alias("group"), "s", "t", "file", "line"
    )
    earlier = (
        Window.partitionBy("group")
        .orderBy("t", "file", "line")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    highest = f.max("s").over(earlier)
    return (
        deliveries.withColumn("highest", highest).where("s <= highest").select("group").distinct()
    )
