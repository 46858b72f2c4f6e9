"""Packets and ledger metadata: byte for byte what BookKeeper's own classes make."""

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.ledgers.bookkeeper.digests import DigestType, PacketDigest, master_key
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    decode_metadata,
    encode_metadata,
)
from anabranch.testing.servers.pulsar import java_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(200)]
PROGRAM = Path(__file__).with_name("BookKeeperFormats.java")
PAYLOADS = [b"", b"hello", bytes(range(256)) * 20]
PASSWORDS = [b"", b"passwd", b"\x00\xff" * 40]
NUMBERS = [(0, 0, -1, 5120), (7, 3, 1, 2**40), (2**63 - 1, 2**63 - 1, 2**62, 2**63 - 1)]


def java_answers(folder: Path, questions: Sequence[str]) -> list[str]:
    done = subprocess.run(
        java_command(folder, "-Xmx256m", main=str(PROGRAM)),
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    answers = [line[1] for line in lines if line[0] == "answer"]
    assert len(answers) == len(questions), done.stderr[-4000:]
    return answers


@pytest.mark.goal("core.L5", part="digests")
def test_packets_and_keys_are_those_of_java(tmp_path: Path) -> None:
    questions: list[str] = []
    ours: list[str] = []
    for password in PASSWORDS:
        questions.append(f"key {password.hex()}")
        ours.append(master_key(password).hex())
        for digest_type in DigestType:
            digest = PacketDigest(digest_type, password)
            words = f"{digest_type.name} {password.hex()}"
            for ledger_id, entry_id, confirmed, length in NUMBERS:
                questions.append(f"confirmed {words} {ledger_id} {entry_id}")
                ours.append(digest.lac_packet(ledger_id, entry_id).hex())
                for payload in PAYLOADS:
                    numbers = (ledger_id, entry_id, confirmed, length)
                    questions.append(
                        f"packet {words} {' '.join(map(str, numbers))} {payload.hex()}"
                    )
                    ours.append((digest.header_and_digest(*numbers, payload) + payload).hex())
    assert java_answers(tmp_path, questions) == ours


def made(rng: random.Random) -> LedgerMetadata:
    ensemble = rng.randint(1, 5)
    write = rng.randint(1, ensemble)
    names = [f"bookie-{number}:3181" for number in range(9)]
    state = rng.choice(list(State))
    closed = state is State.CLOSED
    firsts = sorted({0, *(rng.choice((rng.randrange(50), rng.randrange(2**62))) for _ in "1234")})
    return LedgerMetadata(
        ledger_id=rng.choice((rng.randrange(2**31), rng.randrange(2**63))),
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=rng.randint(1, write),
        state=state,
        last_entry_id=rng.choice((-1, 0, rng.randrange(2**63))) if closed else -1,
        length=rng.choice((0, rng.randrange(2**63))) if closed else 0,
        digest=rng.choice(list(DigestType)),
        password=rng.randbytes(rng.choice((0, 6, 30))),
        segments=tuple(
            EnsembleSegment(first, tuple(rng.sample(names, ensemble)))
            for first in firsts[: rng.randint(1, len(firsts))]
        ),
        ctime_ms=rng.choice((None, 0, rng.randrange(2**42))),
        # One at most: Java keeps them in an order of its own.
        custom_metadata=rng.choice(({}, {"": b""}, {"application": rng.randbytes(9)})),
        ctoken=rng.randrange(-(2**63), 2**63),
    )


@pytest.mark.goal("core.L5", part="ledger metadata")
def test_ledger_metadata_come_back_from_java_unchanged(tmp_path: Path) -> None:
    rng = random.Random(6)
    documents = [made(rng) for _ in range(500)]
    assert {(made.state, made.digest) for made in documents} == {
        (state, digest) for state in State for digest in DigestType
    }
    written = [encode_metadata(metadata) for metadata in documents]
    answers = java_answers(
        tmp_path,
        [
            f"metadata {metadata.ledger_id} {data.hex()}"
            for metadata, data in zip(documents, written, strict=True)
        ],
    )
    for metadata, data, answer in zip(documents, written, answers, strict=True):
        assert answer == data.hex(), f"of {metadata}"
        assert decode_metadata(metadata.ledger_id, bytes.fromhex(answer)) == metadata
