"""A Spark driver that copies a topic row by row, each once, until it is killed.

    python -m anabranch.testing.spark_copier SERVICE_URL ADMIN_URL FROM TO CHECKPOINT

Of every batch that is done it prints how far that went, as JSON. A query that fails, since its
broker or too many of its workers are gone, is started again.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark_anabranch.failures import SparkFailed, failures_of_spark
from pyspark_anabranch.session import spark_session

ROWS_PER_BATCH = 40
_POLL_S = 0.1
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "OFF",
    "spark.python.authenticate.socketTimeout": "120s",
}


def main(service_url: str, admin_url: str, source: str, target: str, checkpoint: str) -> None:
    """Copy for ever."""
    place = Path(checkpoint)
    spark = spark_session(
        "local[2,4]",
        _SETTINGS
        | {
            "spark.local.dir": str(place.parent / "local"),
            "spark.sql.warehouse.dir": str(place.parent / "warehouse"),
        },
    )
    server = {"serviceUrl": service_url, "adminUrl": admin_url}
    reading = {"topic": source, "start": "earliest", "maxRowsPerTrigger": str(ROWS_PER_BATCH)}
    while True:
        rows = spark.readStream.format("anabranch").options(**server, **reading).load()
        writing = rows.select("key", "value").writeStream.format("anabranch")
        writing = writing.options(**server, topic=target, checkpointLocation=checkpoint)
        try:
            with failures_of_spark():
                _follow(writing.start())
        except SparkFailed as error:
            print(error, file=sys.stderr, flush=True)
            time.sleep(_POLL_S)


def _follow(query: Any) -> None:
    told = -1
    while not query.awaitTermination(_POLL_S):
        progress = query.lastProgress
        if progress is not None and progress["numInputRows"] and progress["batchId"] > told:
            told = progress["batchId"]
            print(json.dumps(_offsets(progress["sources"][0]["endOffset"])), flush=True)


def _offsets(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


if __name__ == "__main__":
    main(*sys.argv[1:])
