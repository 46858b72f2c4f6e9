"""History drill on Spark: the check of a long history finds exactly what is hidden in it.

    python -m anabranch.testing.spark_history_drill --messages 100000000 --master 'local[2]'

The history is made by Spark itself, three records for each message, with seven messages lost, five
stored twice and three delivered late. The verdict is JSON; exit code 0 says that these were found,
and nothing else.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from anabranch.testing.made_spark_history import made_history, spread
from anabranch.testing.stopping import run_program
from pyspark_anabranch.jobs.contract import Progress, run_job
from pyspark_anabranch.jobs.history_check import HistoryCheck
from pyspark_anabranch.session import spark_session

ROWS_PER_PARTITION: Final = 2_000_000
WANTED: Final = {"C1": 7, "C4": 5, "C6": 3}


def drill(messages: int, master: str, memory: str) -> dict[str, Any]:
    """Make a history and check it; return the verdict."""
    parts = messages // ROWS_PER_PARTITION
    settings = {
        "spark.driver.memory": memory,
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(max(8, parts)),
    }
    spark = spark_session(master, settings)
    history = made_history(spark, messages, spread(messages), max(4, parts))
    told = ""

    def tell(progress: Progress) -> None:
        nonlocal told
        if progress.text != told:
            told = progress.text
            print(told, file=sys.stderr)

    verdict = run_job(HistoryCheck(history=history), spark, on_progress=tell)
    found = {rule["id"]: rule["violations"] for rule in verdict.result["rules"]}
    memory_bean = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    heap = memory_bean.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    spark.stop()
    unwanted = {rule: count for rule, count in found.items() if count != WANTED.get(rule, 0)}
    return {
        "messages": messages,
        "seconds": round(verdict.seconds, 1),
        "heap_mib": heap >> 20,
        "found": found,
        "counts": verdict.result["counts"],
        "violations": [f"{rule} was found {count} times" for rule, count in unwanted.items()],
    }


def main(arguments: Sequence[str]) -> int:
    """Run the drill: 0 if it found what is there, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="6g", help="of the driver")
    options = parser.parse_args(arguments)
    verdict = drill(options.messages, options.master, options.memory)
    print(json.dumps(verdict, indent=1))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
