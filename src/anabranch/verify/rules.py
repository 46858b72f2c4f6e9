"""The judge: gives every record to the facts and then to each rule, and concludes.

Streaming. A new rule is a new class in `RULES`; `checked` says how much each one judged,
so that a rule that judged nothing cannot look like one that found nothing.
"""

from collections.abc import Sequence
from typing import Final

from anabranch.verify.cursor_rules import AckedAgain, CursorRegress
from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import STUCK_IN_WINDOW_S_MAX
from anabranch.verify.message_rules import AbortedRead, Lost, Phantom, StoredTwice
from anabranch.verify.order_rules import DivergentPlace, KeyOrder, PlaceOrder, Stuck
from anabranch.verify.ownership_rules import SplitOwnership
from anabranch.verify.records import Record
from anabranch.verify.rule import Handler, Rule

RULES: Final[tuple[type[Rule], ...]] = (
    Lost,
    Phantom,
    AbortedRead,
    StoredTwice,
    AckedAgain,
    KeyOrder,
    PlaceOrder,
    DivergentPlace,
    CursorRegress,
    SplitOwnership,
    Stuck,
)


class Judge:
    """Judges one run. Feed it every record in the order of time, then `conclude` once."""

    def __init__(
        self,
        *,
        dedup: bool,
        ack_lag_s: float = 0.0,
        wait_in_window_s: float = STUCK_IN_WINDOW_S_MAX,
        rules: Sequence[type[Rule]] = RULES,
    ) -> None:
        self.facts = Facts(dedup=dedup, ack_lag_s=ack_lag_s, wait_in_window_s=wait_in_window_s)
        self.rules: Sequence[Rule] = [rule(self.facts) for rule in rules]
        self._handlers: dict[type[Record], list[Handler]] = {}
        for rule in self.rules:
            for kind, handler in rule.handlers().items():
                self._handlers.setdefault(kind, []).append(handler)

    def see(self, record: Record) -> News:
        """Take in one record and say what was new about it.

        Raises:
            FormatError: if it contradicts the records before it.
        """
        news = self.facts.take(record)
        for handler in self._handlers.get(type(record), ()):
            handler(record, news)
        return news

    def conclude(self) -> None:
        """Let every rule judge what can be judged only at the end."""
        for rule in self.rules:
            rule.conclude()
