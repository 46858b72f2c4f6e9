"""The drills of several brokers, of which the owner of a topic is hurt again and again."""

from typing import Final

from anabranch.testing.drill import Drill

_MODULE: Final = "anabranch.testing.broker_drill"
_PAUSED: Final = ("--pause-s", "40", "--session-timeout-s", "15")
BROKER_DRILLS: Final = (
    Drill(
        "kill-brokers",
        "kill -9 of the owner of a topic among three brokers on ZooKeeper and bookies, every 20 s",
        _MODULE,
        ("--faults", "{size}"),
        full=30,
        small=2,
    ),
    Drill(
        "kill-brokers-sdk",
        "the same by the SDK, whose confirmed acknowledgements must outlive every take-over",
        _MODULE,
        ("--faults", "{size}", "--client", "sdk"),
        full=30,
        small=2,
    ),
    Drill(
        "kill-brokers-dedup",
        "the same with deduplication, and receipts held back: no take-over stores a message twice",
        _MODULE,
        ("--faults", "{size}", "--dedup", "--unanswered-s", "0.5"),
        full=30,
        small=2,
    ),
    Drill(
        "pause-brokers",
        "the owner stands still for 40 s, longer than its session lasts",
        _MODULE,
        ("--faults", "{size}", *_PAUSED),
        full=12,
        small=1,
    ),
    Drill(
        "pause-brokers-sdk",
        "the same by the SDK: what it heard of cursors and acknowledgements is true afterwards",
        _MODULE,
        (*("--faults", "{size}", "--client", "sdk"), *_PAUSED),
        full=12,
        small=1,
    ),
    Drill(
        "pause-brokers-dedup",
        "the same with deduplication: no take-over stores a message twice",
        _MODULE,
        ("--faults", "{size}", "--dedup", *_PAUSED),
        full=12,
        small=1,
    ),
    Drill(
        "cut-brokers",
        "the owner is cut off from its metadata store, from the bookies, or from both, for 20 s",
        _MODULE,
        ("--faults", "{size}", "--client", "sdk", "--cut-s", "20", "--gap-s", "30"),
        full=18,
        small=3,
    ),
    Drill(
        "kill-brokers-oxia",
        "kill -9 of the owner of a topic among three brokers on Oxia and bookies, by the SDK",
        _MODULE,
        ("--faults", "{size}", "--client", "sdk", "--metadata", "oxia"),
        full=30,
        small=2,
    ),
    Drill(
        "pause-brokers-oxia",
        "the owner stands still for 40 s, longer than its session on Oxia lasts, by the SDK",
        _MODULE,
        (*("--faults", "{size}", "--client", "sdk", "--metadata", "oxia"), *_PAUSED),
        full=12,
        small=1,
    ),
    Drill(
        "cut-brokers-oxia",
        "the owner is cut off from Oxia, from the bookies, or from both, for 20 s",
        _MODULE,
        (
            "--faults",
            "{size}",
            "--client",
            "sdk",
            "--cut-s",
            "20",
            "--gap-s",
            "30",
            "--metadata",
            "oxia",
        ),
        full=18,
        small=3,
    ),
)
