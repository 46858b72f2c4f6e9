"""The rule about owners: C13, two of them acknowledge writes of one topic at one time. Pure.

A topic is a chain of ledgers, and whoever takes it over fences the last one before it writes to the
next. So once a message in a later ledger was acknowledged, nothing that is sent from then on can be
in an earlier one, whoever sends it. A receipt that says so comes from an owner that was not fenced.
"""

from bisect import bisect_right
from collections.abc import Mapping

from anabranch.verify.facts import Facts, News
from anabranch.verify.records import MessageId, Outcome, Record, Sent
from anabranch.verify.rule import Handler, Rule


class _Fences:
    """When a topic was first known to have gone on to each later ledger."""

    __slots__ = ("ledgers", "times")

    def __init__(self) -> None:
        self.ledgers: list[int] = []
        self.times: list[float] = []

    def after(self, ledger: int) -> tuple[int, float] | None:
        """The first later ledger of which there was a receipt, and when."""
        index = bisect_right(self.ledgers, ledger)
        return (self.ledgers[index], self.times[index]) if index < len(self.ledgers) else None

    def reached(self, ledger: int, t: float) -> None:
        """There is a receipt of a ledger."""
        if not self.ledgers or ledger > self.ledgers[-1]:
            self.ledgers.append(ledger)
            self.times.append(t)


class SplitOwnership(Rule):
    """C13: a message was sent after a later ledger had a receipt, and stored in an earlier one."""

    id = "C13"
    title = "split ownership"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._fences: dict[int, _Fences] = {}

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Sent: self._on_sent}

    def _on_sent(self, record: Sent, _: News) -> None:
        place = record.place
        if record.outcome is not Outcome.OK or place is None or place.ledger < 0:
            return  # a duplicate has no place of its own
        self.checked += 1
        fences = self._fences.get(place.partition)
        if fences is None:
            fences = self._fences[place.partition] = _Fences()
        found = self.facts.lines[record.producer, record.epoch].find(record.seq)
        assert found is not None, "the facts refuse an outcome without its send"
        block, index = found
        fenced = fences.after(place.ledger)
        if fenced is not None and block.begun[index] > fenced[1]:
            self.report(
                f"it was sent after ledger {fenced[0]} had a receipt, and is in {place.ledger}",
                record.t,
                message=MessageId(record.producer, record.epoch, record.seq),
                places=(place,),
            )
        fences.reached(place.ledger, record.t)
