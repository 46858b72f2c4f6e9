"""Rows per second of a query without payloads: through the broker, from ledgers, from an index.

python -m benchmarks.spark_light_scan --messages 2000000 --master 'local[2]'
"""

import argparse
import asyncio
import tempfile
import time
import urllib.request
from typing import Final

from anabranch.client import Batching, Client
from anabranch.testing.servers import anabranch_standalone
from anabranch.testing.servers.standalone import Standalone
from pyspark_anabranch.session import spark_session

PARTITIONS: Final = 4
BYTES: Final = 100
BATCHING: Final = Batching(messages_max=1000, bytes_max=128 << 10, delay_s=0.01)
ROUNDS: Final = 3


async def fill(server: Standalone, messages: int) -> None:
    """Publish keyed messages to all partitions, and have their ledgers sealed."""
    async with Client(server.service_url) as client:
        for partition in range(PARTITIONS):
            topic = f"scanned-partition-{partition}"
            consumer = await client.consumer(topic, "keeps", initial_position="earliest")
            await consumer.close()
            producer = await client.producer(topic, batching=BATCHING)
            answers = []
            for number in range(messages // PARTITIONS):
                answers.append(await producer.send_soon(bytes(BYTES), key=b"key-%d" % number))
                if len(answers) == 50_000:
                    await asyncio.gather(*answers)
                    answers.clear()
            await producer.flush()
            await asyncio.gather(*answers)


def ask(server: Standalone, method: str, path: str, body: bytes | None = None) -> None:
    """Ask the admin interface for something."""
    url = f"{server.web_url}/admin/v2/persistent/public/default/{path}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    urllib.request.urlopen(request, timeout=60).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    with anabranch_standalone() as server, tempfile.TemporaryDirectory() as index:
        ask(server, "PUT", "scanned/partitions", str(PARTITIONS).encode())
        asyncio.run(fill(server, arguments.messages))
        for partition in range(PARTITIONS):
            ask(server, "PUT", f"scanned-partition-{partition}/unload")
        spark = spark_session(arguments.master, {"spark.log.level": "ERROR"})
        where = {
            "serviceUrl": server.service_url,
            "adminUrl": server.web_url,
            "topic": "scanned",
            "columns": "key_hash,sequence_id,publish_time",
        }
        direct = {"ledgersUrl": f"embedded:{server.data}"}
        ways = {
            "broker": {},
            "ledgers": direct,
            "index": {**direct, "indexFolder": index},
        }
        for name, options in ways.items():
            table = spark.read.format("anabranch").options(**where, **options).load()
            query = table.selectExpr("count(*)", "bit_xor(key_hash)", "max(sequence_id)")
            figures, rows = [], 0
            for _ in range(ROUNDS):
                began = time.perf_counter()
                row = query.first()
                assert row is not None, "an aggregate over everything has one row"
                rows = int(row[0])
                figures.append(rows / (time.perf_counter() - began))
            shown = ", ".join(f"{figure:,.0f}" for figure in figures)
            print(f"{name:8} {rows:,} rows, rows/s of {arguments.master}: {shown}")
        spark.stop()


if __name__ == "__main__":
    main()
