"""A process that reads as the tasks of a Spark query do, and is killed while it reads.

    python -m anabranch.testing.spark_readers SERVICE_URL ADMIN_URL TOPIC READERS [KILLS]

It says `reading` when every reader has its first rows, and then reads no further. With KILLS it
starts so many processes that do this, kills each with SIGKILL when it reads, and says `killed`.
"""

import os
import signal
import sys
from typing import Any

from pyspark_anabranch import DefaultSource


def main(service_url: str, admin_url: str, topic: str, readers: str, kills: str = "") -> None:
    """Begin to read, so many times, and wait for the end."""
    options = {"serviceUrl": service_url, "adminUrl": admin_url, "topic": topic}
    if not kills:
        print("reading", _begin(options, int(readers)), flush=True)
        signal.pause()
    # Once here, so that not every worker has to load what reading takes.
    _begin(options, 1)
    _RUNNING.pop().close()
    for _ in range(int(kills)):
        _kill_one(options, int(readers))
        print("killed", flush=True)


def _begin(options: dict[str, str], readers: int) -> int:
    reader = DefaultSource(options).reader(None)  # type: ignore[arg-type]
    (partition,) = reader.partitions()
    _RUNNING.extend(reader.read(partition) for _ in range(readers))
    return min(int(next(batches).num_rows) for batches in _RUNNING)


_RUNNING: list[Any] = []
"""What is read; it ends with the process alone."""


def _kill_one(options: dict[str, str], readers: int) -> None:
    """Fork a worker, as Spark's daemon does, and kill it as soon as it has rows."""
    begun, told = os.pipe()
    worker = os.fork()
    if worker == 0:
        _begin(options, readers)
        os.write(told, b"1")
        signal.pause()
    os.close(told)
    try:
        if os.read(begun, 1) != b"1":
            sys.exit("a worker ended before it had rows")
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        os.close(begun)


if __name__ == "__main__":
    main(*sys.argv[1:])
