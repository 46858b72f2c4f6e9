"""How the pauses of publishing at the faults of a drill are counted."""

from anabranch.testing.publish_gaps import PublishGaps
from anabranch.verify.records import WINDOW_CLOSED, WINDOW_OPENED, Event, Outcome, Record, Sent


def receipt(producer: int, t: float, outcome: Outcome = Outcome.OK) -> Sent:
    return Sent(producer, 0, int(t * 1000), outcome, None, t=t)


def test_the_longest_gap_of_each_producer_at_each_fault_counts() -> None:
    gaps = PublishGaps()
    told: list[Record] = [
        *(receipt(producer, t) for t in (1.0, 4.0) for producer in (1, 2)),
        Event(WINDOW_OPENED, "kill 1", t=5.0),
        receipt(1, 6.0, Outcome.UNKNOWN),
        receipt(2, 6.0),
        receipt(1, 7.5),
        Event(WINDOW_CLOSED, "kill 1", t=8.0),
        receipt(1, 8.01),
        receipt(2, 8.5),
        receipt(1, 19.0),
    ]
    for record in told:
        gaps.see(record)
    # Neither the pause before the fault nor the one after it is a gap of the fault.
    assert gaps.seconds() == [2.5, 3.5]
    assert gaps.figures()["gap_max_s"] == 3.5
    assert gaps.figures()["gap_min_s"] == 2.5


def test_a_run_without_a_fault_has_no_gaps() -> None:
    gaps = PublishGaps()
    for t in (1.0, 4.0):
        gaps.see(receipt(1, t))
    assert gaps.figures() == {}
