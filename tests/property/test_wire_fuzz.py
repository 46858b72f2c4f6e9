"""Hostile bytes: the codec refuses them with a reason, and nothing else ever happens.

`tests/corpus/wire` holds whole streams. Its `bad_*` files are refused (`bad_entry_*` only when the
entry is looked into), all others are understood to the end. Bytes that once broke the codec are
added as another file.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import limits, wire
from anabranch.errors import ProtocolError
from anabranch.testing import wire_fuzz
from anabranch.testing.traced_memory import least_peak_bytes
from anabranch.wire import Buffer, Decoder

FOLDER = Path(__file__).parents[1] / "corpus" / "wire"
CORPUS = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.bin"))}
STREAMS = list(CORPUS.values())
REFUSED = [name for name in CORPUS if name.startswith("bad_") and not name.startswith("bad_entry_")]
BAD_ENTRIES = [name for name in CORPUS if name.startswith("bad_entry_")]
UNDERSTOOD = [name for name in CORPUS if not name.startswith("bad_")]


def test_the_corpus_is_there() -> None:
    assert len(UNDERSTOOD) >= 20
    assert len(REFUSED) >= 8
    assert len(BAD_ENTRIES) >= 5


@pytest.mark.goal("core.S3", part="wire", broken_by="frames_in_pieces_count_twice")
@pytest.mark.parametrize("name", CORPUS)
def test_corpus_never_breaks_the_codec(name: str) -> None:
    whole = wire_fuzz.exercise(CORPUS[name])
    for piece_bytes in (1, 5, 8, 100):
        assert wire_fuzz.exercise(CORPUS[name], piece_bytes=piece_bytes) == whole


@pytest.mark.parametrize("name", REFUSED)
def test_bad_streams_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        Decoder().feed(CORPUS[name])


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_good_streams_are_understood_to_the_end(name: str) -> None:
    decoder = Decoder()
    assert decoder.feed(CORPUS[name])
    assert decoder.buffered_bytes == 0


def is_refused_by(read: Callable[[Buffer], object], entry: Buffer) -> bool:
    try:
        return read(entry) is False
    except ProtocolError:
        return True


def split(entry: Buffer) -> list[object]:
    count = wire.message_count(entry)
    batch = wire.read_metadata(entry).num_messages_in_batch is not None
    return list(wire.split_batch(wire.payload_of(entry), count)) if batch else []


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_bad_entries_are_refused_when_looked_into(name: str) -> None:
    commands = Decoder().feed(CORPUS[name])
    assert commands
    for command in commands:
        assert isinstance(command, wire.Send)
        assert any(
            is_refused_by(read, command.entry)
            for read in (wire.verify_checksum, wire.message_count, split)
        )


@pytest.mark.goal("core.S3", part="wire", broken_by="frames_in_pieces_count_twice")
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_mutated_streams_never_break_the_codec(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        data, piece_bytes = wire_fuzz.mutate(rng, STREAMS), rng.choice((1, 3, 7, 64))
        whole = wire_fuzz.exercise(data)
        assert wire_fuzz.exercise(data, piece_bytes=piece_bytes) == whole


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=600))
def test_random_bytes_never_break_the_codec(data: bytes) -> None:
    assert wire_fuzz.exercise(data, piece_bytes=7) == wire_fuzz.exercise(data)
    refused = is_refused_by(wire.read_metadata, data)
    assert wire_fuzz.look_into_entry(data) >= refused, "it is refused by a second reading too"


def test_mutations_reach_past_the_framing() -> None:
    # A fuzzer whose every stream dies in the first frame would show nothing.
    assert wire_fuzz.fuzz(1, STREAMS, streams=300) > 200


def test_a_seed_repeats() -> None:
    assert wire_fuzz.fuzz(7, STREAMS, 50) == wire_fuzz.fuzz(7, STREAMS, 50)


def test_a_declared_size_allocates_nothing() -> None:
    head = (limits.FRAME_BYTES_MAX - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")

    def feed_heads() -> None:
        decoders = [Decoder() for _ in range(100)]
        for decoder in decoders:
            decoder.feed(head)
        assert all(decoder.buffered_bytes == 8 for decoder in decoders)

    assert least_peak_bytes(feed_heads, enough_bytes=limits.MIB) < limits.MIB


def test_a_frame_in_tiny_pieces_is_kept_once() -> None:
    entry = bytes(20_000)
    data = b"".join(wire.send_frame(1, 1, 1, entry))

    def feed_bytes() -> None:
        decoder = Decoder()
        assert len([command for byte in data for command in decoder.feed(bytes((byte,)))]) == 1

    bound_bytes = 3 * len(data)
    assert least_peak_bytes(feed_bytes, enough_bytes=bound_bytes) < bound_bytes
