"""A long metadata history of one key is judged in time and room that a laptop has."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from anabranch.errors import FormatError
from anabranch.testing.traced_memory import least_peak_bytes
from anabranch.verify.metadata_facts import MetadataFacts
from anabranch.verify.metadata_records import (
    Call,
    Counted,
    Done,
    MetadataRecord,
    Op,
    Read,
    Seen,
    Watched,
    Watching,
)
from anabranch.verify.metadata_rules import MetadataVerdict
from anabranch.verify.records import Outcome
from anabranch.verify.verdict import Status

KEY = "/run/key"
OPERATIONS_PER_LIFE = 5


def lives(count: int) -> Iterator[MetadataRecord]:
    """A key that is created, read, replaced, deleted and found missing, again and again."""
    t = 0.0
    yield Watching((1, 0), t)
    for life in range(count):
        first, second = (1, 0, life), (1, 1, life)
        n, at = 3 * life, 3 * life
        yield Call(n, Op.CREATE, KEY, f"{n}", None, t + 1)
        yield Done(n, Outcome.OK, KEY, first, (1, at + 1), "", t + 2)
        yield Seen("created", KEY, (1, at + 1), t + 2)
        yield Read(KEY, f"{n}", first, (1, at + 1), t + 3, t + 4)
        yield Call(n + 1, Op.SWAP, KEY, f"{n + 1}", first, t + 5)
        yield Done(n + 1, Outcome.OK, KEY, second, (1, at + 2), "", t + 6)
        yield Seen("modified", KEY, (1, at + 2), t + 6)
        yield Call(n + 2, Op.DELETE, KEY, "", second, t + 7)
        yield Done(n + 2, Outcome.OK, KEY, None, None, "", t + 8)
        yield Seen("deleted", KEY, (1, at + 3), t + 8)
        yield Read(KEY, None, None, None, t + 9, t + 10)
        t += 10
    yield Watched((1, 3 * count), True, t)
    yield Counted(0, t)


@pytest.mark.timeout(120)
def test_many_operations_on_one_key_are_judged_in_time() -> None:
    """Comparing each with each would take hours."""
    operations = 60_000
    with closing(MetadataFacts()) as facts:
        facts.take_client("c", lives(operations // OPERATIONS_PER_LIFE))
        facts.arrange()
        verdict = MetadataVerdict(facts)
    assert verdict.counts["calls"] + verdict.counts["reads"] == operations
    assert verdict.status is Status.CLEAN, verdict.as_text()


def test_memory_does_not_grow_with_the_history() -> None:
    def judge(count: int) -> None:
        with closing(MetadataFacts()) as facts:
            facts.take_client("c", lives(count))
            facts.arrange()
            assert MetadataVerdict(facts).status is Status.CLEAN

    bound_bytes = least_peak_bytes(lambda: judge(200)) + 50_000
    assert least_peak_bytes(lambda: judge(2_000), enough_bytes=bound_bytes) < bound_bytes


def test_findings_do_not_grow_with_the_history() -> None:
    """All of them are counted, and some are shown."""

    def with_other_values() -> Iterator[MetadataRecord]:
        for record in lives(500):
            is_found = isinstance(record, Read) and record.value is not None
            yield record._replace(value="other") if is_found else record  # type: ignore[call-arg]

    with closing(MetadataFacts()) as facts:
        facts.take_client("c", with_other_values())
        facts.arrange()
        verdict = MetadataVerdict(facts)
    assert verdict.violations["phantom"] == 500
    assert len(verdict.findings["phantom"]) == 100


@pytest.mark.parametrize(
    "record",
    [
        Read(KEY, "v", None, None, 1.0, 1.0),
        Read(KEY, "v", (1, 0, 0), (1, 1 << 70), 1.0, 1.0),
        Read(KEY, "\ud800", (1, 0, 0), (1, 1), 1.0, 1.0),
        Seen("created", KEY, (1, 1)),
    ],
    ids=["no version", "no such revision", "no text", "no watch"],
)
def test_what_no_store_can_have_said_is_refused(record: MetadataRecord) -> None:
    with closing(MetadataFacts()) as facts, pytest.raises(FormatError):
        facts.take_client("c", [record])
