"""A process that sends rows as a task of a Spark query does, until it is killed or has sent all.

    python -m anabranch.testing.spark_senders SERVICE_URL ADMIN_URL TOPIC BATCHES

Whoever runs it again sends the same rows under the same name.
"""

import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from pyspark_anabranch.options import Options
from pyspark_anabranch.writers import Publishing

ROWS_PER_BATCH = 500
BATCH_ID = 5
_PAUSE_S = 0.02
"""Between two batches, so that some are answered while others are under way."""


def batches(count: int, pause_s: float = 0.0) -> Iterator[pa.RecordBatch]:
    """The rows of the task: each is its number."""
    for first in range(0, count * ROWS_PER_BATCH, ROWS_PER_BATCH):
        values = [b"%d" % number for number in range(first, first + ROWS_PER_BATCH)]
        yield pa.RecordBatch.from_pydict({"value": values})
        time.sleep(pause_s)


def send(service_url: str, admin_url: str, topic: str, rows: Iterator[pa.RecordBatch]) -> int:
    """Send rows at least once; how many of them the broker did not have."""
    options = {"serviceUrl": service_url, "adminUrl": admin_url, "topic": topic}
    publishing = Publishing(Options(options | {"guarantee": "at_least_once"}))
    return publishing.send("query", 0, BATCH_ID, rows)


if __name__ == "__main__":
    service_url, admin_url, topic, count = sys.argv[1:]
    send(service_url, admin_url, topic, batches(int(count), _PAUSE_S))
