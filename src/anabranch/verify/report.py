"""The report: one HTML page about one or more runs, without a script and without another file."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from anabranch.verify.check import OnProgress, check_folder
from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import STUCK_IN_WINDOW_S_MAX, STUCK_S_MAX
from anabranch.verify.order_rules import Stuck, Wait
from anabranch.verify.plots import Line, Mark, Window, plot
from anabranch.verify.records import Event, Record
from anabranch.verify.rules import Judge
from anabranch.verify.timeline import FAULTS, EventSample, Span, Timeline
from anabranch.verify.verdict import Status, Verdict, Violation

_WAITS_SHOWN: Final = 10
_HEAD: Final = (
    "<!doctype html>\n"
    '<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What the page says about one run."""

    name: str
    verdict: Verdict
    timeline: Timeline
    windows: Sequence[tuple[float, float]]
    waits: Sequence[Wait]


def report_on(folder: Path, *, on_progress: OnProgress | None = None) -> RunReport:
    """Judge a run and gather what its page shows.

    Raises:
        AnabranchError: as `check_folder`.
    """
    timeline = Timeline()
    judges: list[Judge] = []

    def see(record: Record, news: News, judge: Judge) -> None:
        if not judges:
            judges.append(judge)
        timeline.see(record, news, judge.facts)

    verdict = check_folder(folder, on_progress=on_progress, also=see)
    facts = judges[0].facts if judges else Facts(dedup=False)
    rules = judges[0].rules if judges else ()
    waits = [wait for rule in rules if isinstance(rule, Stuck) for wait in rule.long_waits]
    waits.sort(key=lambda wait: wait.since - wait.until)
    return RunReport(
        folder.name, verdict, timeline, facts.all_windows(timeline.end), waits[:_WAITS_SHOWN]
    )


def page(runs: Sequence[RunReport]) -> str:
    """Return the whole page."""
    style = (files("anabranch.verify") / "report.css").read_text(encoding="utf-8")
    worst = [status for status in _WORST_FIRST if any(r.verdict.status is status for r in runs)]
    title = f"Verification: {worst[0].value}" if worst else "Verification"
    sections = "".join(_section(run, number) for number, run in enumerate(runs, start=1))
    contents = ""
    if len(runs) > 1:
        links = "".join(
            f'<li><a href="#run-{number}">{escape(run.name)}</a> {_badge(run.verdict.status)}</li>'
            for number, run in enumerate(runs, start=1)
        )
        contents = f'<nav aria-label="Runs"><ul>{links}</ul></nav>'
    return (
        f"{_HEAD}<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{contents}{sections}</main></body></html>\n"
    )


_WORST_FIRST: Final = (Status.VIOLATED, Status.INCOMPLETE, Status.CLEAN)


def _badge(status: Status) -> str:
    return f'<strong class="badge {status.value}">{status.value}</strong>'


def _section(run: RunReport, number: int) -> str:
    verdict = run.verdict
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in verdict.reasons)
    lacking = f"<h3>Not enough to judge</h3><ul>{reasons}</ul>" if reasons else ""
    return (
        f'<section id="run-{number}" aria-labelledby="title-{number}">'
        f'<h2 id="title-{number}">{escape(run.name)} {_badge(verdict.status)}</h2>'
        f"{lacking}{_counts(run)}<h3>Rules</h3>{_rules(verdict)}{_evidence(verdict)}"
        f"{_plots(run)}{_waits(run)}{_events(run)}</section>"
    )


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _shown(cell: object) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.4g}" if isinstance(cell, float) else str(cell)


def _counts(run: RunReport) -> str:
    total = run.timeline.total()
    figures = {
        **{name.replace("_", " "): float(n) for name, n in run.verdict.figures.items()},
        "receipt after, p50 ms": total.send.percentile_s(0.5) * 1e3,
        "receipt after, p99 ms": total.send.percentile_s(0.99) * 1e3,
        "receipt after, longest ms": total.send.max_s * 1e3,
        "delivered after, p50 ms": total.arrival.percentile_s(0.5) * 1e3,
        "delivered after, p99 ms": total.arrival.percentile_s(0.99) * 1e3,
        "delivered after, longest ms": total.arrival.max_s * 1e3,
    }
    items = [*run.verdict.counts.items(), *figures.items()]
    facts = "".join(
        f"<div><dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_shown(value))}</dd></div>"
        for name, value in items
    )
    return f"<dl>{facts}</dl>"


def _rules(verdict: Verdict) -> str:
    rows = [
        (
            rule.id,
            rule.title,
            "violated" if rule.violations else "kept" if rule.checked else "nothing to judge",
            rule.checked,
            rule.violations,
            rule.tolerated,
        )
        for rule in verdict.rules
    ]
    head = ("Rule", "Title", "Result", "Checked", "Violations", "Tolerated")
    return _table("What each rule judged and found", head, rows)


def _evidence(verdict: Verdict) -> str:
    parts = []
    for rule in verdict.rules:
        found = [v for v in verdict.violations if v.finding.rule == rule.id]
        if found:
            items = "".join(map(_violation, found))
            parts.append(
                f"<details open><summary>{escape(rule.id)} {escape(rule.title)}: {len(found):,} of"
                f" {rule.violations:,}</summary><ol>{items}</ol></details>"
            )
    return f"<h3>Evidence</h3>{''.join(parts)}" if parts else ""


def _violation(violation: Violation) -> str:
    head, *rest = violation.as_text().strip().split("\n")
    lines = escape("\n".join(line.strip() for line in rest))
    return f"<li>{escape(head)}<pre>{lines}</pre></li>"


def _plots(run: RunReport) -> str:
    timeline = run.timeline
    if timeline.begin is None or not timeline.spans:
        return ""
    begin, width = timeline.begin, timeline.span_s
    marks = [_mark(event, begin) for event in timeline.events()]
    windows = [Window(a - begin, b - begin) for a, b in run.windows]
    seconds = max(timeline.end - begin, width)
    per = f"each point {width:g} s"
    shape = {"seconds": seconds, "marks": marks, "windows": windows}

    def line(name: str, style: str, value: Callable[[Span], float]) -> Line:
        return Line(name, style, [(at, value(span)) for at, span in timeline.each()])

    latency = [
        line("p50", "a", lambda span: span.send.percentile_s(0.5) * 1e3),
        line("p99", "b", lambda span: span.send.percentile_s(0.99) * 1e3),
        line("longest", "c", lambda span: span.send.max_s * 1e3),
    ]
    arrival = [
        line("p50", "a", lambda span: span.arrival.percentile_s(0.5) * 1e3),
        line("p99", "b", lambda span: span.arrival.percentile_s(0.99) * 1e3),
        line("longest", "c", lambda span: span.arrival.max_s * 1e3),
    ]
    rate = [
        line("acknowledged", "a", lambda span: span.acknowledged / width),
        line("delivered", "b", lambda span: span.delivered / width),
        line("failed or unknown", "c", lambda span: (span.failed + span.unknown) / width),
    ]
    return (
        _figure(f"Time to the receipt, {per}", latency, unit=" ms", is_log=True, **shape)
        + _figure(f"Time to the first delivery, {per}", arrival, unit=" ms", is_log=True, **shape)
        + _figure(f"Messages per second, {per}", rate, unit="/s", **shape)
        + _numbers(timeline)
    )


def _mark(event: Event, begin: float) -> Mark:
    style = "fault" if event.name in FAULTS else "step"
    text = f"{event.t - begin:.3f} s: {event.name} {event.about}".strip()
    return Mark(event.t - begin, text, style)


def _figure(name: str, lines: Sequence[Line], **shape: object) -> str:
    legend = "".join(f'<span class="key {line.style}">{escape(line.name)}</span>' for line in lines)
    return (
        f'<figure><figcaption>{escape(name)} <span class="legend">{legend}'
        '<span class="key fault">fault</span><span class="key step">event</span>'
        '<span class="key window">declared window</span></span></figcaption>'
        f'<div class="wide">{plot(name, lines, **shape)}</div></figure>'  # type: ignore[arg-type]
    )


def _numbers(timeline: Timeline) -> str:
    rows = [
        (
            at,
            span.acknowledged,
            span.failed,
            span.unknown,
            span.delivered,
            span.send.percentile_s(0.5) * 1e3,
            span.send.percentile_s(0.99) * 1e3,
            span.send.max_s * 1e3,
        )
        for at, span in timeline.each()
    ]
    head = (
        "From s",
        "Acknowledged",
        "Failed",
        "Unknown",
        "Delivered",
        "p50 ms",
        "p99 ms",
        "Max ms",
    )
    table = _table(f"The plots in numbers, {timeline.span_s:g} s each", head, rows)
    return f"<details><summary>The plots in numbers</summary>{table}</details>"


def _waits(run: RunReport) -> str:
    begin = run.timeline.begin or 0.0
    gaps = [(gap.since - begin, gap.seconds) for gap in run.timeline.gaps()]
    waits = [
        (
            wait.producer,
            wait.since - begin,
            wait.until - wait.since,
            STUCK_IN_WINDOW_S_MAX if wait.in_window else STUCK_S_MAX,
        )
        for wait in run.waits
    ]
    parts = ["<h3>Longest waits</h3>"]
    if waits:
        columns = ("Producer", "From s", "Waited s", "Allowed s")
        parts.append(_table("Producers that waited more than 1 s for a receipt", columns, waits))
    else:
        parts.append("<p>No producer waited more than 1 s for a receipt.</p>")
    if gaps:
        head = ("From s", "Lasted s")
        parts.append(_table("Longest gaps between two receipts of all producers", head, gaps))
    return "".join(parts)


def _events(run: RunReport) -> str:
    timeline = run.timeline
    shown = timeline.events()
    if not shown:
        return ""
    begin = timeline.begin or 0.0
    rows = [(event.t - begin, event.name, event.about) for event in shown]
    table = _table("What happened", ("At s", "Event", "About"), rows)
    counts = f"{_count(timeline.faults, 'faults')}, {_count(timeline.steps, 'other events')}"
    return f"<h3>Events</h3><details><summary>{counts}</summary>{table}</details>"


def _count(sample: EventSample, title: str) -> str:
    shown = len(sample.shown())
    if shown == sample.seen:
        return f"{shown:,} {title}"
    return f"{sample.seen:,} {title} of which {shown:,} are shown, evenly picked, with the last"
