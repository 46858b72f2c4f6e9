"""How many rows a second the sink takes: two writers, and a server that answers at once.

python -m benchmarks spark_write_path --pairs 5

Each writer is a process that hands Arrow batches to the writer of a batch write with `guarantee`
`at_least_once`, as a task of Spark does; Spark itself is left out. The server is a process of its
own beside them. It keeps nothing, and counts what came.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
import uvloop

from anabranch.errors import AnabranchError
from anabranch.limits import MESSAGE_BYTES_MAX
from anabranch.wire import BaseCommand, Decoder, Send, encode, replies, send_receipt
from benchmarks import options as asked_options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun
from pyspark_anabranch.limits import ARROW_BATCH_ROWS
from pyspark_anabranch.options import Options
from pyspark_anabranch.writers import Publishing

WRITERS: Final = 2
ROWS: Final = 3_000_000
"""Of each writer."""
ROW_BYTES: Final = 100
WANTED_PER_S: Final = 300_000
OURS: Final = "anabranch"
WANTED: Final = "wanted"
"""A side that is no server but the rate that is asked for."""
SHAPES: Final = ("value", "key_and_value")
_KEYS: Final = 1000
_WARM_UP_ROWS: Final = 100_000
_PATIENCE_S: Final = 600
_ASKED: Final = (BaseCommand.PARTITIONED_METADATA, BaseCommand.LOOKUP, BaseCommand.PRODUCER)


class RowsAreMissing(AnabranchError):
    """The server has other rows than were sent."""


class _Answering(asyncio.Protocol):
    """One connection of the server that keeps nothing."""

    def __init__(self, url: str, count: Callable[[int], None]) -> None:
        self._url = url
        self._count = count
        self._decoder = Decoder(frame_bytes_max=2 * MESSAGE_BYTES_MAX)
        self._entries = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for command in self._decoder.feed(data):
            if isinstance(command, Send):
                self._entries += 1
                self._count(command.num_messages)
                receipt = send_receipt(
                    command.producer_id,
                    command.sequence_id,
                    1,
                    self._entries,
                    command.highest_sequence_id,
                )
                self._transport.write(receipt)
            elif isinstance(command, BaseCommand) and (answer := self._answer(command)):
                self._transport.write(encode(answer))

    def _answer(self, command: BaseCommand) -> BaseCommand | None:
        if command.type == BaseCommand.CONNECT:
            return replies.connected("none", 21, MESSAGE_BYTES_MAX)
        if command.type == BaseCommand.PARTITIONED_METADATA:
            return replies.partition_metadata(command.partitionMetadata.request_id, 0)
        if command.type == BaseCommand.LOOKUP:
            return replies.lookup_connect(command.lookupTopic.request_id, self._url)
        if command.type == BaseCommand.PRODUCER:
            asked = command.producer
            return replies.producer_success(asked.request_id, asked.producer_name)
        if command.type == BaseCommand.CLOSE_PRODUCER:
            return replies.success(command.close_producer.request_id)
        return replies.pong() if command.type == BaseCommand.PING else None


class _NoPartitions(BaseHTTPRequestHandler):
    """The admin interface: no topic has partitions."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"partitions": 0}')

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def _serve(parent: Connection) -> None:
    rows = [0]

    def count(more: int) -> None:
        rows[0] += more

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        url: list[str] = [""]
        server = await loop.create_server(lambda: _Answering(url[0], count), "127.0.0.1", 0)
        url[0] = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        web = HTTPServer(("127.0.0.1", 0), _NoPartitions)
        Thread(target=web.serve_forever, daemon=True).start()
        parent.send((url[0], f"http://127.0.0.1:{web.server_port}"))
        while await loop.run_in_executor(None, parent.recv):
            parent.send(rows[0])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _batches(rows: int, shape: str) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them to a task; each batch is made before it is asked for."""
    draw = np.random.default_rng(1)
    offsets = np.arange(ARROW_BATCH_ROWS + 1, dtype=np.int32) * ROW_BYTES
    content = pa.py_buffer(draw.bytes(ARROW_BATCH_ROWS * ROW_BYTES))
    buffers = [None, pa.py_buffer(offsets), content]
    columns = {"value": pa.Array.from_buffers(pa.binary(), ARROW_BATCH_ROWS, buffers)}
    if shape == SHAPES[1]:
        numbers = draw.integers(_KEYS, size=ARROW_BATCH_ROWS)
        columns["key"] = pa.array([f"key-{number}" for number in numbers], pa.string())
    batch = pa.RecordBatch.from_pydict(columns)
    for start in range(0, rows, ARROW_BATCH_ROWS):
        yield batch.slice(0, min(ARROW_BATCH_ROWS, rows - start))


def _write(parent: Connection, options: dict[str, str], shape: str) -> None:
    publishing = Publishing(Options(options))
    publishing.send("warm", 0, 0, _batches(_WARM_UP_ROWS, shape))
    parent.send("ready")
    parent.recv()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    sent = publishing.send("measured", 0, 0, _batches(ROWS, shape))
    parent.send((sent, began_s, time.monotonic(), time.process_time() - began_cpu_s))


@contextmanager
def _process(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe()
    child = spawned.Process(target=work, args=(theirs, *arguments), daemon=True)
    child.start()
    try:
        yield ours
    finally:
        child.kill()
        child.join()


def _told(child: Connection) -> Any:
    if not child.poll(_PATIENCE_S):
        raise RowsAreMissing(f"nothing was heard for {_PATIENCE_S} s")
    return child.recv()


def measure(shape: str) -> dict[str, Figure]:
    """Write the rows, and look whether all of them came.

    Raises:
        RowsAreMissing: if not.
    """
    with ExitStack() as opened:
        server = opened.enter_context(_process(_serve))
        service_url, admin_url = _told(server)
        options = {"serviceUrl": service_url, "adminUrl": admin_url, "guarantee": "at_least_once"}
        writers = [
            opened.enter_context(_process(_write, options | {"topic": f"rows-{number}"}, shape))
            for number in range(WRITERS)
        ]
        for writer in writers:
            _told(writer)
        for writer in writers:
            writer.send("go")
        found = [_told(writer) for writer in writers]
        server.send("how many")
        came = _told(server)
    wanted = WRITERS * (ROWS + _WARM_UP_ROWS)
    if came != wanted:
        raise RowsAreMissing(f"{came} rows came of {wanted}")
    seconds = max(end for _, _, end, _ in found) - min(began for _, began, _, _ in found)
    cpu_s = sum(cpu for _, _, _, cpu in found)
    return {
        shape: Figure(WRITERS * ROWS / seconds),
        f"{shape}_cpu": Figure(cpu_s / WRITERS / ROWS * 1e6),
    }


def _one(side: str, _options: asked_options.Options, say: Callable[[str], None]) -> SideRun:
    run = SideRun(side)
    for shape in SHAPES:
        run.load_averages.append(os.getloadavg()[0])
        found = measure(shape) if side == OURS else {shape: Figure(WANTED_PER_S)}
        say(f"{side}: " + ", ".join(f"{key} {each.value:,.2f}" for key, each in found.items()))
        run.figures |= found
    return run


def run(options: asked_options.Options) -> None:
    """Measure so many times, print the table, keep the ratios."""
    measures = [
        each
        for shape in SHAPES
        for each in (
            Measure(shape, shape.replace("_", " "), "rows/s", True),
            Measure(f"{shape}_cpu", f"{shape.replace('_', ' ')}: CPU of a row", "µs", False),
        )
    ]
    run_pairs("spark_write_path", tuple(measures), _one, replace(options, sides=(OURS, WANTED)))
