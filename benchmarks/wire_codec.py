"""What the codec costs per frame, in microseconds of CPU, beside protobuf doing the same."""

import time
from collections.abc import Callable
from functools import partial

from anabranch import wire
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire.slow_parse import parse_command

FRAMES = 500
OPERATIONS = 20_000
REPEATS = 7
ENTRY = wire.build_entry(
    wire.MessageMetadata(
        producer_name="standalone-0-12",
        sequence_id=1_234_567,
        publish_time=1_700_000_000_000,
        partition_key="key-17",
        num_messages_in_batch=100,
        uncompressed_size=1024,
    ),
    bytes(1024),
)


def cpu_us(work: Callable[[], object], operations: int) -> float:
    """The best of several rounds; CPU time, so that a busy machine disturbs less."""
    rounds = max(1, OPERATIONS // operations)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, time.process_time() - start)
    return best / rounds / operations * 1e6


def streams() -> dict[str, bytes]:
    """One stream of equal commands for each that is hot."""
    ids = [wire.AckedId(12_345, entry_id, None, None) for entry_id in range(FRAMES)]
    sequence = range(1_234_567, 1_234_567 + FRAMES)
    return {
        "SEND": b"".join(b"".join(wire.send_frame(3, number, 100, ENTRY)) for number in sequence),
        "SEND_RECEIPT": b"".join(
            wire.send_receipt(3, number, 12_345, number % 50_000) for number in sequence
        ),
        "MESSAGE": b"".join(
            wire.message_header(3, 12_345, entry_id, len(ENTRY)) + ENTRY
            for entry_id in range(FRAMES)
        ),
        "ACK": b"".join(wire.ack(3, wire.INDIVIDUAL, [where]) for where in ids),
        "FLOW": wire.flow(3, 500) * FRAMES,
    }


def figures_us() -> dict[str, float]:
    """Microseconds per operation, by name."""
    figures = {}
    view = memoryview(ENTRY)
    for name, stream in streams().items():
        figures[f"decode {name}"] = cpu_us(partial(wire.Decoder().feed, stream), FRAMES)
    (send,) = wire.send_frame(3, 1_234_567, 100, ENTRY)[:1]
    command = bytes(send[8:])
    figures["decode SEND by protobuf"] = cpu_us(lambda: parse_command(command, view), 1)
    many = wire.ack(
        3, wire.INDIVIDUAL, [wire.AckedId(12_345, number, None, None) for number in range(FRAMES)]
    )
    figures["decode ACK of many, per id"] = cpu_us(lambda: wire.Decoder().feed(many), FRAMES)
    figures |= _encoding()
    figures["verify_checksum, 1 KiB"] = cpu_us(lambda: wire.verify_checksum(view), 1)
    figures["message_count"] = cpu_us(lambda: wire.message_count(view), 1)
    figures["read_metadata, one field"] = cpu_us(lambda: wire.read_metadata(view).partition_key, 1)
    return figures


def _encoding() -> dict[str, float]:
    def by_protobuf() -> bytes:
        return wire.encode(
            pb.BaseCommand(
                type=pb.BaseCommand.SEND_RECEIPT,
                send_receipt=pb.CommandSendReceipt(
                    producer_id=3,
                    sequence_id=1_234_567,
                    message_id=pb.MessageIdData(ledgerId=12_345, entryId=40_000),
                ),
            )
        )

    return {
        "encode SEND_RECEIPT": cpu_us(lambda: wire.send_receipt(3, 1_234_567, 12_345, 40_000), 1),
        "encode SEND_RECEIPT by protobuf": cpu_us(by_protobuf, 1),
        "encode MESSAGE": cpu_us(lambda: wire.message_header(3, 12_345, 40_000, 1200), 1),
        "encode SEND": cpu_us(lambda: wire.send_frame(3, 1_234_567, 100, ENTRY), 1),
    }


def run() -> None:
    for label, microseconds in figures_us().items():
        print(f"{label:34} {microseconds:8.2f} µs")


if __name__ == "__main__":
    run()
