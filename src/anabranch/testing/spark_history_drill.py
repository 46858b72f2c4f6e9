"""Drill of the history check on Spark: fifteen faults in a history too long for one process.

    python -m anabranch.testing.spark_history_drill --messages 100000000 --master 'local[2]'

The history is made by Spark itself, three records for each message, with seven messages lost, five
stored twice and three delivered late. Exactly these messages must be named. A history of at most
`--beside` messages is written to a file as well, and the check of one process must say the same of
it. The verdict is JSON; exit code 0 says that all this was so.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.testing.made_spark_history import (
    KEYS,
    PRODUCERS,
    Faults,
    made_history,
    spread,
    written_history,
)
from anabranch.testing.stopping import run_program
from anabranch.verify.check import check_folder
from pyspark_anabranch.jobs.contract import JobVerdict, Progress, run_job
from pyspark_anabranch.jobs.histories import History
from pyspark_anabranch.jobs.history_check import JUDGED, HistoryCheck
from pyspark_anabranch.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_PARTITION: Final = 2_000_000
_NAMED: Final = ("rule", "producer", "epoch", "seq", "subscription", "detail", "positions", "t")
"""Of a violation. One process reads its files again for the records and the key as well."""
_COUNTS: Final = ("sends", "acknowledged", "failed", "unknown", "deliveries", "redeliveries")


def misjudged(result: Mapping[str, Any], faults: Faults) -> list[str]:
    """What a check says wrongly of a made history: faults it missed, and alarms without one."""
    wanted = {"C1": set(faults.lost), "C4": set(faults.doubled), "C6": set(faults.late)}
    found: dict[str, set[int]] = {rule["id"]: set() for rule in result["rules"]}
    for one in result["violations"]:
        found[one["rule"]].add(one["seq"] * PRODUCERS + one["producer"])
    wrong = []
    for rule in result["rules"]:
        named, hidden = found[rule["id"]], wanted.get(rule["id"], set())
        wrong += [f"{rule['id']}: {number} was not found" for number in sorted(hidden - named)]
        wrong += [f"{rule['id']}: {number} has no fault" for number in sorted(named - hidden)]
        if rule["violations"] != len(hidden):
            wrong.append(f"{rule['id']}: {len(hidden)} are there, {rule['violations']} were found")
    return wrong


def judgement(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a check and that of one process must agree on, each violation with its positions."""
    rules = {rule.id for rule in JUDGED}
    return {
        "rules": [rule for rule in result["rules"] if rule["id"] in rules],
        "violations": sorted(
            json.dumps([one[name] for name in _NAMED])
            for one in result["violations"]
            if one["rule"] in rules
        ),
        "counts": {name: result["counts"][name] for name in _COUNTS},
    }


def _made(spark: "SparkSession", messages: int) -> History:
    parts = max(4, messages // ROWS_PER_PARTITION)
    return made_history(spark, messages, spread(messages), parts)


def checked_beside(spark: "SparkSession", messages: int) -> tuple[list[str], float]:
    """Have Spark and one process judge the same history: where they disagree, and local seconds."""
    history = _made(spark, messages)
    ours = judgement(run_job(HistoryCheck(history=history), spark).result)
    with tempfile.TemporaryDirectory(prefix="anabranch-history-") as folder:
        written_history(history, Path(folder))
        began_s = time.monotonic()
        local = judgement(check_folder(Path(folder)).as_json())
        seconds = time.monotonic() - began_s
    differ = [name for name in ours if local[name] != ours[name]]
    return [f"one process says {local[name]}, not {ours[name]}" for name in differ], seconds


def checked(spark: "SparkSession", messages: int) -> tuple[JobVerdict, list[str]]:
    """Make a history and check it; return the verdict, and what is wrong with it."""
    told = ""

    def tell(progress: Progress) -> None:
        nonlocal told
        if progress.text != told:
            told = progress.text
            print(told, file=sys.stderr)

    job = HistoryCheck(history=_made(spark, messages))
    verdict = run_job(job, spark, on_progress=tell)
    return verdict, misjudged(verdict.result, spread(messages))


def drill(messages: int, beside: int, master: str, memory: str) -> dict[str, Any]:
    """Check a history, and a shorter one twice; return the verdict."""
    settings = {
        "spark.driver.memory": memory,
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(max(8, messages // ROWS_PER_PARTITION)),
    }
    spark = spark_session(master, settings)
    verdict, violations = checked(spark, messages)
    memory_bean = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    heap = memory_bean.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    disagreements, local_s = checked_beside(spark, beside)
    spark.stop()
    return {
        "messages": messages,
        "seconds": round(verdict.seconds, 1),
        "heap_mib": heap >> 20,
        "found": {rule["id"]: rule["violations"] for rule in verdict.result["rules"]},
        "counts": verdict.result["counts"],
        "figures": {"beside": beside, "beside_local_seconds": round(local_s, 1)},
        "violations": [*violations, *disagreements],
    }


def main(arguments: Sequence[str]) -> int:
    """Run the drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.spark_history_drill")
    add = parser.add_argument
    add("--messages", type=int, default=10_000_000, help="default: %(default)s")
    add("--beside", type=int, default=1_000_000, help="messages for both checks, at most")
    add("--master", default="local[2]")
    add("--memory", default="6g", help="of the driver")
    options = parser.parse_args(arguments)
    if min(options.messages, options.beside) < 2 * KEYS:
        parser.error(f"faults need room: at least {2 * KEYS} messages")
    beside = min(options.messages, options.beside)
    verdict = drill(options.messages, beside, options.master, options.memory)
    print(json.dumps(verdict, indent=1))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
