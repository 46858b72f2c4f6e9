"""The report says what the verdict says, shows the time line, and lets nothing hostile through."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.testing.made_histories import (
    ORDERED,
    RUN,
    delivered,
    receipt,
    sent,
    subscribed,
    write_history,
)
from anabranch.verify.check import check_folder
from anabranch.verify.history import Header
from anabranch.verify.limits import REPORT_EVENTS_MAX
from anabranch.verify.records import (
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Drained,
    End,
    Event,
    Record,
)
from anabranch.verify.report import page, report_on
from anabranch.verify.timeline import Latencies, Timeline
from anabranch.verify.verdict import Status

EVIL = '<script>alert("x")</script>&\'"</title>'


class Parsed(HTMLParser):
    """The tables, tags and words of a page; fails on tags that do not match."""

    VOID = ("meta", "line", "rect", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag not in ("meta",) and not (tag in self.VOID and self._open[-1] == "svg"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("line", "rect") and self._open[-1] != tag:
            return
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._open and self._open[-1] in ("td", "th") and self._rows:
            self._rows[-1].append(data)
        if self._open and self._open[-1] == "caption":
            self.tables[data] = self._rows


def history(*more: Record, name: str = "client", key: str = "k") -> list[Record]:
    records: list[Record] = [subscribed()]
    for seq in range(1, 101):
        at = 100.0 + seq * 0.1
        records.append(sent(seq, key=key)._replace(t=at))
        records.append(receipt(seq)._replace(t=at + 0.004))
        records.append(delivered(seq, key=key)._replace(t=at + 0.008))
    return [*records, *more, Drained(ORDERED, "made"), End()]


def made(folder: Path, records: list[Record]) -> Path:
    write_history(folder, "client", records)
    return folder


def test_numbers_of_the_page_are_those_of_the_verdict(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", history(delivered(777)._replace(t=120.0)))
    verdict = check_folder(folder)
    parsed = Parsed(page([report_on(folder)]))
    rows = parsed.tables["What each rule judged and found"][1:]
    assert [(row[0], row[3], row[4], row[5]) for row in rows] == [
        (rule.id, f"{rule.checked:,}", f"{rule.violations:,}", f"{rule.tolerated:,}")
        for rule in verdict.rules
    ]
    assert {row[0]: row[2] for row in rows}["C2"] == "violated"
    assert {row[0]: row[2] for row in rows}["C1"] == "kept"
    assert {row[0]: row[2] for row in rows}["C3"] == "nothing to judge"
    words = " ".join(parsed.words)
    assert "seq 777" in words, "the evidence is shown"
    assert "Verification: violated" in words
    spans = next(rows for name, rows in parsed.tables.items() if name.startswith("The plots"))
    acknowledged = sum(int(row[1].replace(",", "")) for row in spans[1:])
    assert acknowledged == verdict.counts["acknowledged"]
    assert sum(int(row[4].replace(",", "")) for row in spans[1:]) == verdict.counts["deliveries"]
    assert {row[5] for row in spans[1:] if row[1] != "0"} == {"4"}, "p50 in ms"


def test_page_needs_nothing_but_itself_and_runs_nothing(tmp_path: Path) -> None:
    text = page([report_on(made(tmp_path / "run", history()))])
    parsed = Parsed(text)
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form"}
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert ("html", {"lang": "en"}) in parsed.tags
    assert any(tag == "meta" and a.get("name") == "viewport" for tag, a in parsed.tags)
    assert "prefers-color-scheme: dark" in text
    plots = [attributes for tag, attributes in parsed.tags if tag == "svg"]
    assert len(plots) == 3
    assert all(a["role"] == "img" and a["aria-label"] for a in plots)


def test_faults_and_windows_are_on_the_time_line(tmp_path: Path) -> None:
    trouble = [Event(WINDOW_OPENED, "kill 1"), Event(SERVER_KILLED, "kill 1")]
    later = Event(WINDOW_CLOSED, "kill 1", t=115.0)
    more = [sent(200)._replace(t=115.5), receipt(200)._replace(t=119.0), delivered(200)]
    folder = made(tmp_path / "run", history(*trouble, later, *more))
    parsed = Parsed(page([report_on(folder)]))
    marks = [a for tag, a in parsed.tags if tag == "line" and "fault" in str(a.get("class"))]
    assert len(marks) == 3, "one in each plot"
    assert sum(tag == "rect" and a.get("class") == "window" for tag, a in parsed.tags) == 3
    assert any("server-killed kill 1" in word for word in parsed.words)
    waits = parsed.tables["Producers that waited more than 1 s for a receipt"]
    assert waits[1] == ["0", "15.5", "3.5", "5"]
    gaps = parsed.tables["Longest gaps between two receipts of all producers"]
    assert gaps[1][1] == "8.996"


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    evil = [Event(EVIL, EVIL), delivered(555, key=EVIL)._replace(t=120.0)]
    folder = tmp_path / "<b>run"
    header = Header(run=RUN, client="client", host=EVIL, topic=EVIL)
    write_history(folder, "client", history(*evil, key=EVIL), header=header)
    text = page([report_on(folder)])
    parsed = Parsed(text)
    assert "<script" not in text
    assert not {tag for tag, _ in parsed.tags} & {"script", "b"}
    assert any(EVIL in word for word in parsed.words)


def test_long_run_has_wider_points_and_loses_nothing(tmp_path: Path) -> None:
    records: list[Record] = [subscribed()]
    for seq in range(1, 2000):
        at = 100.0 + seq
        records += [sent(seq)._replace(t=at), receipt(seq)._replace(t=at + 0.5)]
        records.append(delivered(seq)._replace(t=at + 0.6))
    report = report_on(made(tmp_path / "run", [*records, Drained(ORDERED, "made")]))
    assert report.timeline.span_s == 4.0
    assert len(report.timeline.spans) <= 600
    assert report.timeline.total().acknowledged == 1999


def test_percentiles_are_right_to_6_percent() -> None:
    latencies = Latencies()
    for number in range(1, 10_001):
        latencies.add(number / 1000)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999):
        exact = share * 10
        assert exact <= latencies.percentile_s(share) <= exact * 1.0625 + 1e-6
    assert latencies.percentile_s(1.0) == latencies.max_s == 10.0
    assert Latencies().percentile_s(0.5) == 0.0


def test_run_without_anything_has_a_page_too(tmp_path: Path) -> None:
    run = report_on(made(tmp_path / "run", []))
    assert run.verdict.status is Status.INCOMPLETE
    assert "Not enough to judge" in page([run])
    assert Timeline().total().acknowledged == 0


@pytest.mark.parametrize(("more", "code"), [([], 0), ([delivered(777)._replace(t=120.0)], 1)])
def test_command_writes_the_page(tmp_path: Path, more: list[Record], code: int) -> None:
    good = made(tmp_path / "good", history())
    other = made(tmp_path / "other", history(*more))
    target = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["verify", "report", str(good), str(other), "-o", str(target)])
    assert result.exit_code == code, result.output
    assert result.stdout.strip() == str(target)
    parsed = Parsed(target.read_text())
    assert [a["id"] for tag, a in parsed.tags if tag == "section"] == ["run-1", "run-2"]
    assert len(re.findall("nav", target.read_text())) >= 2


def test_unreadable_history_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    result = CliRunner().invoke(
        app, ["verify", "report", str(tmp_path / "none"), "-o", str(target)]
    )
    assert result.exit_code == 2
    assert "there is no folder" in result.output
    assert not target.exists()


def test_faults_of_the_whole_run_are_shown_however_many_there_are(tmp_path: Path) -> None:
    """A soak with thousands of faults shows its last ones too, and says how many there were."""
    count, steps = 5 * REPORT_EVENTS_MAX, 10 * REPORT_EVENTS_MAX
    first_s = 120.0
    events: list[Record] = []
    for number in range(count):
        at = first_s + number
        events.append(Event(SERVER_KILLED, f"fault {number}")._replace(t=at))
        events += [Event("phase", "a step")._replace(t=at + 0.5)] * (steps // count)
    parsed = Parsed(page([report_on(made(tmp_path / "run", history(*events)))]))
    shown = [row for row in parsed.tables["What happened"][1:] if row[1] == SERVER_KILLED]
    assert len(shown) <= REPORT_EVENTS_MAX + 1
    numbers = [int(row[2].removeprefix("fault ")) for row in shown]
    assert numbers[0] == 0
    assert numbers[-1] == count - 1
    longest = max(b - a for a, b in pairwise(numbers))
    assert longest <= 2 * count / REPORT_EVENTS_MAX + 1, "they are spread over the run"
    words = " ".join(parsed.words)
    assert f"{count:,} faults of which {len(shown):,} are shown" in words
    assert f"{steps:,} other events of which" in words
    marks = [dict(attrs) for tag, attrs in parsed.tags if tag == "line"]
    assert len([mark for mark in marks if "fault" in (mark.get("class") or "")]) >= len(shown)
