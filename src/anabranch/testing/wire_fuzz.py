"""Hostile bytes for the codec: mutations of valid streams, and everything that may follow.

    python -m anabranch.testing.wire_fuzz --streams 1000000 [--start 0]

Used by the tests in small and by drills in large. A seed gives the same bytes everywhere. The
program prints a verdict as JSON; streams that break the codec are named by their seed.
"""

import argparse
import json
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch import wire
from anabranch.errors import ProtocolError
from anabranch.testing.stopping import INTERRUPTED, run_program
from anabranch.wire import BaseCommand, Buffer, Command, Decoder, ServerError

FRAME_BYTES_MAX = 4096
"""Small, so that lies about sizes fall on both sides of it."""
_SIZE_LIES = (
    0,
    1,
    3,
    4,
    5,
    7,
    8,
    127,
    128,
    FRAME_BYTES_MAX - 4,
    FRAME_BYTES_MAX - 3,
    2**31,
    2**32 - 1,
)
_BATCH_MESSAGES_MAX = 1000
_METADATA_PROPERTIES = [name for name in vars(wire.EntryMetadata) if not name.startswith("_")]

_SIZES_BYTES = 8
_FRAMES_MAX = 4
_RAW_SHARE = 0.3

_Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _flip_bit(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] = rng.choice((0x00, 0x01, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def _delete(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, 16)]


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.choice((rng.randbytes(rng.randint(1, 16)), b"\xff" * rng.randint(1, 32)))


def _splice(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    start = rng.randrange(len(other))
    at = rng.randrange(len(data))
    data[at : at + rng.randint(0, 64)] = other[start : start + rng.randint(1, 256)]


def _lie_about_a_size(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.choice((0, 4, rng.randrange(len(data))))
    data[at : at + 4] = rng.choice(_SIZE_LIES).to_bytes(4, "big")


_MUTATIONS: tuple[_Mutation, ...] = (
    _flip_bit,
    _set_byte,
    _truncate,
    _delete,
    _insert,
    _splice,
    _lie_about_a_size,
)


def _cut(stream: bytes) -> list[tuple[bytes, bytes]]:
    """The commands and entries of a stream; a broken end is one more command."""
    frames = []
    at = 0
    while len(stream) - at >= _SIZES_BYTES:
        end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
        body = at + _SIZES_BYTES
        command_end = body + int.from_bytes(stream[at + 4 : body], "big")
        frames.append((stream[body:command_end], stream[command_end:end]))
        at = max(end, body)
    return frames or [(stream, b"")]


def _frame(command: bytes, entry: bytes) -> bytes:
    total = 4 + len(command) + len(entry)
    return total.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + entry


def _mutate_bytes(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if changed:
            rng.choice(_MUTATIONS)(rng, changed, corpus)
    return bytes(changed)


def mutate(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Make one hostile stream out of valid ones.

    Mostly within commands and entries, with sizes made right again: else hardly anything would get
    past the framing.
    """
    stream = rng.choice(corpus)
    if rng.random() < _RAW_SHARE:
        return _mutate_bytes(rng, stream, corpus)
    frames = _cut(stream)
    parts = []
    for command, entry in rng.choices(frames, k=min(len(frames), _FRAMES_MAX)):
        if rng.random() < 0.5:
            command = _mutate_bytes(rng, command, corpus)
        elif entry:
            entry = _mutate_bytes(rng, entry, corpus)
        parts.append(_frame(command, entry))
    return b"".join(parts)


def exercise(data: bytes, *, piece_bytes: int | None = None) -> list[Command]:
    """Decode a stream and look into all that comes out; return the commands.

    Anything raised from here is a defect: the codec may refuse with ProtocolError only.
    """
    decoder = Decoder(frame_bytes_max=FRAME_BYTES_MAX)
    commands: list[Command] = []
    step = piece_bytes or max(1, len(data))
    try:
        for start in range(0, len(data), step):
            commands += decoder.feed(data[start : start + step])
            assert decoder.buffered_bytes < FRAME_BYTES_MAX
    except ProtocolError as error:
        commands += error.decoded
    for command in commands:
        _look_into(command)
    return commands


def _look_into(command: Command) -> None:
    if isinstance(command, wire.Send | wire.Message):
        look_into_entry(command.entry)
    elif isinstance(command, wire.Ack):
        again = wire.ack(
            command.consumer_id,
            command.ack_type,
            command.message_ids,
            command.request_id,
            txn=command.txn,
        )
        (decoded,) = Decoder().feed(again)
        assert decoded == command._replace(validation_error=None)
    elif isinstance(command, BaseCommand):
        answer = wire.refuse(command, ServerError.NotAllowedError, "no")
        if answer is not None:
            wire.encode(answer)


def look_into_entry(entry: Buffer) -> int:
    """Read all that can be read of an entry; return how many ways of reading refused it."""
    readers: tuple[Callable[[Buffer], object], ...] = (
        wire.verify_checksum,
        wire.message_count,
        wire.broker_metadata,
        wire.without_broker_metadata,
        _read_all,
    )
    refused = 0
    for read in readers:
        try:
            read(entry)
        except ProtocolError:
            refused += 1
    return refused


def _read_all(entry: Buffer) -> None:
    metadata = wire.read_metadata(entry)
    for name in _METADATA_PROPERTIES:
        getattr(metadata, name)
    count = min(metadata.message_count, _BATCH_MESSAGES_MAX)
    for _, payload in wire.split_batch(wire.payload_of(entry), count):
        assert payload.nbytes <= len(entry)


def fuzz(seed: int, corpus: Sequence[bytes], streams: int) -> int:
    """Exercise the codec with so many hostile streams; return how many commands were understood.

    Whole and in pieces must give the same commands.
    """
    rng = random.Random(seed)
    understood = 0
    for _ in range(streams):
        data = mutate(rng, corpus)
        whole = exercise(data)
        assert exercise(data, piece_bytes=rng.choice((1, 3, 7, 64))) == whole
        understood += len(whole)
    return understood


CORPUS: Final = Path(__file__).parents[3] / "tests" / "corpus" / "wire"
_CHUNK_STREAMS: Final = 1000
"""So many streams have one seed."""


def main(arguments: Sequence[str]) -> int:
    """Fuzz: 0 if the codec held, 1 if it broke, 130 if stopped; always with a verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.wire_fuzz")
    parser.add_argument("--streams", type=int, default=_CHUNK_STREAMS, help="how many to try")
    parser.add_argument("--start", type=int, default=0, help="how many were tried before")
    options = parser.parse_args(arguments)
    corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]
    tried = understood = 0
    failure, code = "", 0
    try:
        while tried < options.streams:
            seed = (options.start + tried) // _CHUNK_STREAMS
            try:
                understood += fuzz(seed, corpus, _CHUNK_STREAMS)
            except Exception:  # noqa: BLE001 - whatever the codec lets out is what is looked for
                failure, code = f"seed {seed}: {traceback.format_exc()}", 1
                break
            tried += _CHUNK_STREAMS
            if tried % (100 * _CHUNK_STREAMS) == 0:
                print(f"{tried:,} of {options.streams:,} streams", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        code = INTERRUPTED
    print(json.dumps({"size": tried, "failure": failure, "counts": {"understood": understood}}))
    return code


if __name__ == "__main__":
    run_program(main)
