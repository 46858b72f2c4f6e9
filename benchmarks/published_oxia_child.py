"""The work of `published_oxia`, in a process that has but the standard library and `oxia`.

That client waits for each answer, so what is pipelined or in bulk is done by threads. It has no
request with several writes; a whole store it reads with one scan.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import oxia  # type: ignore[import-not-found]


def _seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _measure(job: dict[str, Any]) -> dict[str, float]:
    client = oxia.Client(job["address"])
    value, paths = b"v" * job["value_bytes"], job["paths"]
    single, pipelined = paths[: job["single"]], paths[: job["pipelined"]]

    def put(path: str) -> None:
        client.put(path, value)

    def one_by_one(operation: Callable[[str], Any]) -> None:
        for path in single:
            operation(path)

    with ThreadPoolExecutor(job["in_flight"]) as threads:

        def many(operation: Callable[[str], Any], some: Sequence[str]) -> None:
            for _ in threads.map(operation, some):
                pass

        seconds = {"written": _seconds(lambda: many(put, paths))}
        read: list[Any] = []
        seconds["read"] = _seconds(lambda: read.extend(client.range_scan("/", "")))
        seconds["get_us"] = _seconds(lambda: one_by_one(client.get))
        seconds["put_us"] = _seconds(lambda: one_by_one(put))
        seconds["gets"] = _seconds(lambda: many(client.get, pipelined))
        seconds["puts"] = _seconds(lambda: many(put, pipelined))
    client.close()
    return {**seconds, "nodes": len(read)}


if __name__ == "__main__":
    print(json.dumps(_measure(json.load(sys.stdin))))
