"""A program for a Spark cluster of two executors: a topic read, and whose code its tasks run.

    python -m anabranch.testing.spark_on_a_cluster SERVICE_URL ADMIN_URL TOPIC TARGET STAGING

It reads a topic with tasks on the executors, copies it with a batch write to another, and prints
JSON: the values, where the code of the tasks came from, and how many processes had tasks.
"""

import json
import os
import sys
import time
from typing import Any

from pyspark_anabranch.session import spark_session

_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    "spark.python.authenticate.socketTimeout": "120s",
}


def _whose_code(_: Any) -> Any:
    import pyspark_anabranch

    time.sleep(0.5)  # so that no executor has them all
    yield str(pyspark_anabranch.__file__), os.getppid()


def main(service_url: str, admin_url: str, topic: str, target: str, staging: str) -> None:
    """Run it."""
    spark = spark_session("local-cluster[2,1,1024]", _SETTINGS)
    server = {"serviceUrl": service_url, "adminUrl": admin_url}
    reading = {"topic": topic, "maxEntriesPerTask": "3"}
    table = spark.read.format("anabranch").options(**server, **reading).load()
    values = sorted(row["value"].decode() for row in table.select("value").collect())
    writing = table.select("key", "value").write.format("anabranch").options(**server)
    writing.options(topic=target, stagingFolder=staging).mode("append").save()
    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(_whose_code).collect()
    places = sorted({place for place, _ in found})
    executors = len({executor for _, executor in found})
    print(json.dumps({"values": values, "code": places, "executors": executors}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
