"""How the waits of producers are told by spans, and what a verdict on messages says of a run."""

from pathlib import Path

import pytest

from anabranch.testing.publish_times import PublishTimes, Span
from anabranch.testing.steady_publishing import HOLD, OPERATION, STEADY, wrong_of
from anabranch.verify.check import check_folder
from anabranch.verify.history import SUFFIX, Header, HistoryWriter
from anabranch.verify.records import Outcome, Record, Send, Sent

SPANS = [
    Span(STEADY, 10.0, 20.0),
    Span(OPERATION, 20.5, 30.0),
    Span(HOLD, 25.0, 26.0),
    Span(OPERATION, 40.0, 50.0),
    Span(HOLD, 45.0, 45.5),
]


def sent(seq: int, since: float, until: float, outcome: Outcome = Outcome.OK) -> list[Record]:
    return [Send(1, 0, seq, "k", 0, t=since), Sent(1, 0, seq, outcome, None, t=until)]


def times_of(*messages: list[Record]) -> dict[str, float]:
    times = PublishTimes(SPANS)
    for record in sorted((each for message in messages for each in message), key=lambda r: r.t):
        times.see(record)
    return times.figures()


def test_a_message_counts_where_its_producer_waited() -> None:
    told = times_of(
        sent(0, 1.0, 9.0),  # before everything
        sent(1, 11.0, 11.01),
        sent(2, 19.0, 19.02),
        sent(3, 24.9, 25.4),  # meets the first hold
        sent(4, 30.5, 39.0),  # between the two times
        sent(5, 44.0, 46.0),  # waits through the second hold
    )
    assert told["publish_steady_messages"] == 2
    assert told["publish_steady_max_ms"] == pytest.approx(20.0)
    assert told["publish_operation_messages"] == told["publish_hold_messages"] == 2
    assert told["publish_hold_max_ms"] == pytest.approx(2000.0)
    assert told["publish_hold_p99_ms"] == pytest.approx(2000.0)
    # It begins with the receipt at 25.4 s, in the first hold, and ends with the one at 39 s.
    assert told["publish_hold_silence_ms"] == pytest.approx(13_600.0)
    assert told["publish_steady_silence_ms"] == pytest.approx(8010.0)


def test_one_slow_message_of_a_thousand_is_the_maximum_and_not_the_99th_percentile() -> None:
    quick = [sent(seq, 10.0 + seq / 200, 10.002 + seq / 200) for seq in range(999)]
    told = times_of(*quick, sent(1000, 15.0, 15.9))
    assert told["publish_steady_p99_ms"] == pytest.approx(2.0, rel=0.07)
    assert told["publish_steady_max_ms"] == pytest.approx(900.0)


def test_what_was_not_acknowledged_is_no_receipt() -> None:
    told = times_of(
        sent(0, 11.0, 11.1),
        sent(1, 12.0, 12.5, Outcome.UNKNOWN),
        sent(2, 13.0, 13.1, Outcome.FAIL),
        sent(3, 14.0, 14.1),
    )
    assert told["publish_steady_messages"] == 2
    assert told["publish_steady_silence_ms"] == pytest.approx(3000.0)


def test_a_run_of_which_nothing_can_be_said_is_not_clean(tmp_path: Path) -> None:
    header = Header(
        run="r", host="h", topic="t", dedup=False, ack_lag_s=0.0, settings={},
        client="producer-1", clients=("producer-1",),
    )  # fmt: skip
    history = HistoryWriter(tmp_path / f"producer-1{SUFFIX}", header, lambda: 1.0)
    for record in sent(0, 1.0, 1.1, Outcome.UNKNOWN):
        history.append(record)
    history.close()
    wrong = wrong_of(check_folder(tmp_path))
    assert wrong
    assert all(each.startswith("nothing can be said of messages: ") for each in wrong)
