"""The metadata load: each broken promise is found, a good store is never blamed."""

import pytest

from anabranch.verify.metadata_facts import MetadataFacts
from anabranch.verify.metadata_records import (
    Call,
    Counted,
    Done,
    Held,
    MetadataRecord,
    Op,
    Read,
    Seen,
    VersionTuple,
    Watched,
    Watching,
)
from anabranch.verify.metadata_rules import MetadataVerdict
from anabranch.verify.records import Outcome
from anabranch.verify.verdict import Status

K = "/run/k"


def v(number: int) -> VersionTuple:
    return (1, number, 0)


def wrote(
    n: int, at: int, *, op: Op = Op.PUT, path: str = K, old: int | None = None
) -> list[MetadataRecord]:
    """A put that was acknowledged: version and revision are `at`, the value is its number."""
    expected = None if old is None else v(old)
    done = Done(n, Outcome.OK, path, v(at), (1, at))
    return [Call(n, op, path if op is not Op.SEQUENCE else "/run/n-", f"c/{n}", expected), done]


def deleted(n: int, old: int, *, how: Outcome | None = Outcome.OK) -> list[MetadataRecord]:
    call = Call(n, Op.DELETE, K, "", v(old))
    return [call] if how is None else [call, Done(n, how)]


def tried(n: int, *, how: Outcome | None = None, op: Op = Op.PUT) -> list[MetadataRecord]:
    call = Call(n, op, K, f"c/{n}")
    return [call] if how is None else [call, Done(n, how)]


def held(value: str, at: int, path: str = K) -> Held:
    return Held(path, value, v(at), (1, at))


def read(value: str | None, at: int = 0, *, since: float = 0.0) -> Read:
    version, revision = (None, None) if value is None else (v(at), (1, at))
    return Read(K, value, version, revision, since)


def judged(
    records: list[MetadataRecord], *final: Held, seen: list[Seen] | None = None
) -> MetadataVerdict:
    """Stamp the records, add the end and, if none is given, a watch that saw all."""
    puts = [r for r in records if isinstance(r, Done) and r.revision is not None]
    if seen is None:
        known: set[str] = set()
        seen = []
        for put in sorted(puts, key=lambda put: put.revision or (0, 0)):
            kind = "modified" if put.path in known else "created"
            known.add(put.path)
            assert put.revision is not None
            seen.append(Seen(kind, put.path, put.revision))
        seen = [
            s for s in seen if not any(isinstance(r, Call) and r.op is Op.DELETE for r in records)
        ]
    everything = [Watching((1, 0)), *records, *seen]
    if not any(isinstance(r, Call) and r.op is Op.DELETE for r in records):
        everything.append(Watched((1, 99), True))
    everything += [*final, Counted(len(final))]
    stamped: list[MetadataRecord] = []
    for index, record in enumerate(everything):
        t = float(index + 1)
        if isinstance(record, Read) and not record.t0:
            record = record._replace(t0=t)
        stamped.append(record._replace(t=t))
    facts = MetadataFacts()
    facts.take_client("c", stamped)
    facts.arrange()
    return MetadataVerdict(facts)


def broken(verdict: MetadataVerdict) -> set[str]:
    return {name for name, count in verdict.violations.items() if count}


def test_good_history_is_clean() -> None:
    records = [*wrote(1, 1), read("c/1", 1), *wrote(2, 2, op=Op.SWAP, old=1), read("c/2", 2)]
    verdict = judged(records, held("c/2", 2))
    assert verdict.status is Status.CLEAN, verdict.as_text()
    assert verdict.counts["acknowledged"] == 2


@pytest.mark.parametrize(
    "final",
    [(), (held("c/1", 1),), (held("c/9", 2),)],
    ids=["gone", "older", "another value"],
)
def test_acknowledged_write_that_is_not_there_is_lost(final: tuple[Held, ...]) -> None:
    verdict = judged([*wrote(1, 1), *wrote(2, 2), *tried(9)], *final)
    assert "lost" in broken(verdict)
    assert any("c #2" in finding for finding in verdict.findings["lost"])


@pytest.mark.parametrize("how", [Outcome.OK, Outcome.UNKNOWN, None])
def test_delete_explains_what_is_gone_and_doubt_what_is_new(how: Outcome | None) -> None:
    assert broken(judged([*wrote(1, 1), *deleted(2, 1, how=how)])) == set()
    newer = judged(
        [*wrote(1, 1), *tried(2, how=how if how is not Outcome.OK else None)], held("c/2", 2)
    )
    assert broken(newer) - {"watch complete"} == set()


def test_delete_of_an_older_version_explains_nothing() -> None:
    records = [*wrote(1, 1), *deleted(2, 1), *wrote(3, 3)]
    assert "lost" in broken(judged(records))


@pytest.mark.parametrize(
    ("records", "final"),
    [
        ([*wrote(1, 1)], held("other", 2)),
        ([*wrote(1, 1), *tried(2, how=Outcome.FAIL)], held("c/2", 2)),
        ([*wrote(1, 1)], held("c/1", 1, "/run/other")),
        ([*wrote(1, 1), *deleted(2, 1)], held("c/1", 1)),
        ([*wrote(1, 1), *wrote(2, 2)], held("c/1", 3)),
    ],
    ids=["never written", "refused", "another path", "deleted", "came back"],
)
def test_value_that_nobody_can_have_left_there_is_a_phantom(
    records: list[MetadataRecord], final: Held
) -> None:
    assert "phantom" in broken(judged(records, final))


@pytest.mark.parametrize("value", ["other", "c/2"])
def test_read_of_what_was_never_written_is_a_phantom(value: str) -> None:
    records = [*wrote(1, 1), *tried(2, how=Outcome.FAIL), read(value, 5)]
    assert broken(judged(records, held("c/1", 1))) == {"phantom"}


def test_read_older_than_what_was_acknowledged_before_it_is_stale() -> None:
    after = [*wrote(1, 1), *wrote(2, 2), read("c/1", 1)]
    assert broken(judged(after, held("c/2", 2))) == {"stale read"}
    beside = [*wrote(1, 1), *wrote(2, 2), read("c/1", 1, since=1.5)]
    assert judged(beside, held("c/2", 2)).status is Status.CLEAN
    assert broken(judged([*wrote(1, 1), read(None)], held("c/1", 1))) == {"stale read"}
    again = [*wrote(1, 1), *deleted(2, 1), read("c/1", 1)]
    assert broken(judged(again)) == {"stale read"}


def test_one_version_is_replaced_once() -> None:
    both = [*wrote(1, 1), *wrote(2, 2, op=Op.SWAP, old=1), *wrote(3, 3, op=Op.SWAP, old=1)]
    assert broken(judged(both, held("c/3", 3))) == {"lost update"}
    between = [*wrote(1, 1), *wrote(2, 2), *wrote(3, 3, op=Op.SWAP, old=1)]
    assert broken(judged(between, held("c/3", 3))) == {"lost update"}
    twice = [*wrote(1, 1), *deleted(2, 1), *deleted(3, 1)]
    assert "lost update" in broken(judged(twice))


def test_create_needs_an_empty_place() -> None:
    there = [*wrote(1, 1), *wrote(2, 2, op=Op.CREATE)]
    assert broken(judged(there, held("c/2", 2))) == {"lost update"}
    gone = [*wrote(1, 1), *deleted(2, 1), *wrote(3, 3, op=Op.CREATE)]
    assert broken(judged(gone, held("c/3", 3))) == set()


def test_versions_and_revisions_never_repeat_or_go_back() -> None:
    back = [*wrote(1, 5), *wrote(2, 4)]
    assert "version regress" in broken(judged(back, held("c/1", 5)))
    same = [*wrote(1, 1), *wrote(2, 1, path="/run/other")]
    final = held("c/1", 1), held("c/2", 1, "/run/other")
    assert "version regress" in broken(judged(same, *final))
    beside = [*wrote(1, 5), *wrote(2, 4)]
    beside = [beside[0], beside[2], beside[1], beside[3]]
    assert judged(beside, held("c/1", 5)).status is Status.CLEAN


@pytest.mark.parametrize(("numbers", "is_good"), [((1, 2), True), ((2, 1), False), ((1, 1), False)])
def test_sequence_numbers_rise(numbers: tuple[int, int], is_good: bool) -> None:
    paths = [f"/run/n-{number:010d}" for number in numbers]
    records = [r for n, path in enumerate(paths, 1) for r in wrote(n, n, op=Op.SEQUENCE, path=path)]
    final = {path: held(f"c/{n}", n, path) for n, path in enumerate(paths, 1)}
    assert ("sequence" not in broken(judged(records, *final.values()))) is is_good


SEEN = [Seen("created", K, (1, 1)), Seen("modified", K, (1, 2)), Seen("modified", K, (1, 3))]


@pytest.mark.parametrize(
    ("seen", "rules"),
    [
        (SEEN, set()),
        ([SEEN[0], SEEN[2]], {"watch complete"}),
        ([SEEN[0], SEEN[2], SEEN[1]], {"watch order"}),
        ([*SEEN[:2], SEEN[1], SEEN[2]], {"watch order"}),
        ([*SEEN, Seen("modified", K, (1, 7))], {"watch complete"}),
        ([*SEEN, Seen("deleted", K, (1, 7))], {"watch complete"}),
        ([SEEN[0], SEEN[1], Seen("created", K, (1, 3))], {"watch order"}),
        ([Seen("gap", "/", (1, 2)), SEEN[2]], set()),
        ([Seen("gap", "/", (1, 1)), SEEN[2]], {"watch complete"}),
    ],
    ids=[
        "all", "missed", "order", "twice", "unasked", "unasked delete", "created twice", "gap",
        "gap too small",
    ],
)  # fmt: skip
def test_watch_shows_each_change_once_and_in_order(seen: list[Seen], rules: set[str]) -> None:
    records = [*wrote(1, 1), *wrote(2, 2), *wrote(3, 3)]
    assert broken(judged(records, held("c/3", 3), seen=seen)) == rules


def test_watch_that_never_arrives_is_found() -> None:
    facts = MetadataFacts()
    records = [Watching((1, 0), 1.0), *wrote(1, 1), Watched((1, 1), False, 2.0)]
    facts.take_client("c", [*records, held("c/1", 1), Counted(1)])
    facts.arrange()
    assert broken(MetadataVerdict(facts)) == {"watch complete"}


def test_too_little_input_never_passes() -> None:
    facts = MetadataFacts()
    facts.arrange()
    verdict = MetadataVerdict(facts)
    assert verdict.status is Status.INCOMPLETE
    assert len(verdict.reasons) == 3
