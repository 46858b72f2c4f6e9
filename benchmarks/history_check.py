"""How fast and in how much memory ten million records are judged."""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anabranch.verify.check import check_folder
from anabranch.verify.history import SUFFIX, Header
from anabranch.verify.record_lines import encode
from anabranch.verify.records import (
    Ack,
    AckKind,
    CursorAt,
    Delivery,
    Drained,
    End,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
    Subscribed,
    SubscriptionType,
)

RECORDS: Final = 10_000_000
MEMORY_MIB_MAX: Final = 256
_PRODUCERS: Final = 4
_KEYS: Final = 10_000
_STEP_S: Final = 0.0005
_SUBS: Final = {"ordered": SubscriptionType.EXCLUSIVE, "queue": SubscriptionType.SHARED}
_ACKED_TOGETHER: Final = 50
_RUN: Final = "00" * 8

SHAPES: Final = ("served", "sends only", "keys of their own")
"""A usual run; the worst for the table of sends; the worst for the order of keys."""


def write_histories(folder: Path, *, records: int, shape: str = "served") -> None:
    """Write the histories of a clean run, of about so many records."""
    folder.mkdir(parents=True)
    files = {
        name: (folder / f"{name}{SUFFIX}").open("wb", buffering=1 << 20)
        for name in ("coordinator", *(f"producer-{n}" for n in range(_PRODUCERS)), *_SUBS)
    }
    for name, file in files.items():
        file.write(Header(run=_RUN, client=name, host="made", topic="made").line())
    last = 100.0
    for name, record in _records(records, shape):
        files[name].write(encode(record))
        last = max(last, record.t)
    for name, file in files.items():
        if name == "coordinator":
            for sub in _SUBS:
                file.write(encode(Drained(sub, "made", last + 1.0)))
        file.write(encode(End(last + 2.0)))
        file.close()


def _records(count: int, shape: str) -> Iterator[tuple[str, Record]]:
    for sub, kind in _SUBS.items():
        yield sub, Subscribed(sub, sub, kind, 100.0)
    per_message = 1 if shape == "sends only" else 4
    acked: list[Place] = []
    for number in range(count // per_message):
        producer, seq = number % _PRODUCERS, number // _PRODUCERS + 1
        at = round(100.0 + number * _STEP_S, 6)
        key = f"key-{number}" if shape == "keys of their own" else f"key-{number * 7 % _KEYS}"
        place = Place(-1, 1 + number // 50_000, number % 50_000, -1)
        history = f"producer-{producer}"
        yield history, Send(producer, 0, seq, key, number & 0xFFFFFFFF, at)
        if shape == "sends only" and number:
            continue
        yield history, Sent(producer, 0, seq, Outcome.OK, place, "", round(at + 0.0001, 6))
        acked.append(place)
        for sub in _SUBS:
            crc, t = number & 0xFFFFFFFF, round(at + 0.0002, 6)
            yield sub, Delivery(sub, sub, producer, 0, seq, key, crc, place, t)
            if len(acked) == _ACKED_TOGETHER:
                t = round(at + 0.0003, 6)
                places = tuple(acked)
                yield sub, Ack(sub, sub, AckKind.INDIVIDUAL, Outcome.OK, places, t)
                yield sub, CursorAt(sub, place, t, round(at + 0.0004, 6))
        if len(acked) == _ACKED_TOGETHER:
            acked = []


def check(folder: Path) -> None:
    """Judge in this process and print records, seconds and the peak of memory in MiB."""

    def show(records: int, share: float) -> None:
        if sys.stderr.isatty():
            print(f"\r  {records:,} records, {share:.0%}", end="", file=sys.stderr, flush=True)

    started = time.perf_counter()
    verdict = check_folder(folder, on_progress=show)
    seconds = time.perf_counter() - started
    found = {rule.id for rule in verdict.rules if rule.violations}
    assert found <= {"C14"}, verdict.as_text()  # sends without a receipt wait for ever
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(verdict.counts["records"], round(seconds, 2), round(peak, 1))


def measure(records: int, shape: str) -> tuple[int, float, float]:
    """Judge in a process of its own; return records, seconds and the peak of memory in MiB."""
    with tempfile.TemporaryDirectory(prefix="anabranch-check-") as folder:
        histories = Path(folder) / "histories"
        write_histories(histories, records=records, shape=shape)
        command = [sys.executable, "-m", "benchmarks.history_check", str(histories)]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    count, seconds, peak = found.split()[-3:]
    return int(count), float(seconds), float(peak)


def run(records: int = RECORDS) -> None:
    """Measure every shape and print one table."""
    print(f"{'history':<20} {'records':>12} {'seconds':>9} {'records/s':>10} {'peak MiB':>9}")
    for shape in SHAPES:
        count, seconds, peak = measure(records, shape)
        print(f"{shape:<20} {count:>12,} {seconds:>9.1f} {count / seconds:>10,.0f} {peak:>9.1f}")
        if peak > MEMORY_MIB_MAX:
            print(f"  above the bound of {MEMORY_MIB_MAX} MiB")


if __name__ == "__main__":
    check(Path(sys.argv[1]))
