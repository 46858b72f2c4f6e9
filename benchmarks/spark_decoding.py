"""Rows per second of one core: batched entries of 1 KB messages made into Arrow, by some ways."""

import random
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.client.packing import Outgoing, Packer
from anabranch.generated.pulsar_api_pb2 import SingleMessageMetadata
from anabranch.wire import parse_entry, split_batch, verify_checksum
from anabranch.wire.compression import Compression, compression_number, decompress
from pyspark_anabranch.entry_rows import StoredEntry, rows_of
from pyspark_anabranch.row_columns import COLUMNS, COLUMNS_BY_NAME, Origin, record_batch

ENTRIES: Final = 100
MESSAGES: Final = 100
BYTES: Final = 1024
REPEATS: Final = 7
FOUR: Final = tuple(COLUMNS_BY_NAME[name] for name in ("key", "value", "position", "sequence_id"))
_size_at = struct.Struct(">I").unpack_from
Decode = Callable[[Sequence[bytes]], int]


def made_entries(compression: Compression, *, even: bool) -> list[bytes]:
    """Batches of messages that pack to about half; of one size, or of 512 to 1535 bytes."""
    draw = random.Random(1)
    packer = Packer(compression_number(compression))
    packer.producer_name = "standalone-0-12"
    found = []
    for entry in range(ENTRIES):
        messages = []
        for index in range(MESSAGES):
            size = BYTES if even else draw.randrange(BYTES // 2, BYTES * 3 // 2)
            value = draw.randbytes(size // 2 + 1).hex().encode()[:size]
            key = f"key-{draw.randrange(1000, 9999)}"
            number = entry * MESSAGES + index
            messages.append(Outgoing(value, key, None, None, None, number))
        found.append(packer.batch(messages, 1_700_000_000_000))
    return found


def by_lists(entries: Sequence[bytes]) -> int:
    """Every message a protobuf, every column a list."""
    keys, values, numbers, places = [], [], [], []
    for index, entry in enumerate(entries):
        assert verify_checksum(entry)
        metadata, payload = parse_entry(entry)
        data = decompress(metadata.compression, payload, metadata.uncompressed_size)
        for single, value in split_batch(data, metadata.num_messages_in_batch):
            keys.append(single.partition_key)
            values.append(bytes(value))
            numbers.append(single.sequence_id)
            places.append(index)
    arrays = [
        pa.array(keys, pa.string()),
        pa.array(values, pa.binary()),
        pa.array(numbers),
        pa.array(places),
    ]
    return int(pa.RecordBatch.from_arrays(arrays, ["key", "value", "number", "place"]).num_rows)


def by_joined_values(entries: Sequence[bytes]) -> int:
    """Every message a protobuf, the values joined into one buffer with offsets."""
    keys, values, sizes, numbers, counts = [], [], [], [], []
    parse = SingleMessageMetadata.FromString
    for entry in entries:
        assert verify_checksum(entry)
        metadata, payload = parse_entry(entry)
        data = memoryview(decompress(metadata.compression, payload, metadata.uncompressed_size))
        at = 0
        counts.append(metadata.num_messages_in_batch)
        for _ in range(metadata.num_messages_in_batch):
            body = at + 4 + _size_at(data, at)[0]
            single = parse(bytes(data[at + 4 : body]))
            at = body + single.payload_size
            values.append(data[body:at])
            sizes.append(single.payload_size)
            keys.append(single.partition_key)
            numbers.append(single.sequence_id)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    column = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    places = np.repeat(np.arange(len(counts)), counts)
    arrays = [pa.array(keys, pa.string()), column, pa.array(numbers), pa.array(places)]
    return int(pa.RecordBatch.from_arrays(arrays, ["key", "value", "number", "place"]).num_rows)


def _by_arrays(columns: Sequence[object]) -> Decode:
    origin = Origin("persistent://public/default/topic", -1)

    def decode(entries: Sequence[bytes]) -> int:
        stored = [StoredEntry(5, index, entry) for index, entry in enumerate(entries)]
        return int(record_batch(rows_of(stored), columns, origin).num_rows)  # type: ignore[arg-type]

    return decode


WAYS: Final[dict[str, Decode]] = {
    "lists, 4 columns": by_lists,
    "joined values, 4 columns": by_joined_values,
    "fields side by side, 4 columns": _by_arrays(FOUR),
    "the same, all columns": _by_arrays(COLUMNS),
    "the same, all but the value": _by_arrays([each for each in COLUMNS if each.name != "value"]),
}


def rows_per_second(decode: Decode, entries: Sequence[bytes]) -> float:
    """The best of several rounds, by CPU time: a busy machine disturbs less."""
    best = float("inf")
    rows = 0
    for _ in range(REPEATS):
        start = time.process_time()
        rows = decode(entries)
        best = min(best, time.process_time() - start)
    return rows / best


def run() -> None:
    cases: list[tuple[str, list[bytes]]] = []
    compressions: tuple[Compression, ...] = ("none", "lz4", "zstd")
    for compression in compressions:
        cases.append((f"{compression}, even", made_entries(compression, even=True)))
        cases.append((f"{compression}, uneven", made_entries(compression, even=False)))
    print(f"{'rows/s of one core':32}" + "".join(f"{name:>14}" for name, _ in cases))
    for way, decode in WAYS.items():
        figures = [rows_per_second(decode, entries) for _, entries in cases]
        print(f"{way:32}" + "".join(f"{figure:14,.0f}" for figure in figures))


if __name__ == "__main__":
    run()
