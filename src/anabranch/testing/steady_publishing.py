"""A steady load of messages while something else is measured, and what became of it.

Stock clients publish to one topic at a constant rate; a consumer reads everything back, and the
rules of verify look for messages that were lost, came twice or out of order.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from anabranch.testing.publish_times import PublishTimes, Span
from anabranch.verify.check import check_folder
from anabranch.verify.message_rules import Lost, StoredTwice
from anabranch.verify.records import WINDOW_CLOSED, WINDOW_OPENED, Event, SubscriptionType
from anabranch.verify.verdict import Status, Verdict
from anabranch.verify.workload import Workload, WorkloadSettings

STEADY, OPERATION, HOLD = "steady", "operation", "hold"
"""Names of spans: before, meanwhile, and while writes were held."""
_SEND_S_MAX: Final = 120.0
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the messages."""

    figures: dict[str, float]
    wrong: list[str]
    """What was lost, came twice or is wrong in another way; why nothing can be said, too."""


class SteadyPublishing:
    """Publishes for as long as the body runs, or until `finish`."""

    def __init__(self, url: str, folder: Path, *, rate: float, seed: int = 0) -> None:
        """`rate` is in messages a second, of two producers together, one of which has batches."""
        run = Random(f"steady/{seed}").randbytes(8).hex()
        settings = WorkloadSettings(
            url=url,
            topic=f"persistent://public/default/steady-{run}",
            run=run,
            seed=seed,
            producers=2,
            subscriptions=(SubscriptionType.EXCLUSIVE,),
            rate=rate,
            send_timeout_s=_SEND_S_MAX,
        )
        self._workload = Workload(settings, folder)

    async def __aenter__(self) -> Self:
        try:
            await self._workload.start()
        except BaseException:
            await self._workload.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._workload.close()

    def open_window(self) -> None:
        """From here on a producer may wait for longer."""
        self._workload.note(Event(WINDOW_OPENED, OPERATION))

    async def finish(self) -> None:
        """Stop sending, let everything arrive, and end.

        Raises:
            ClientFailed: if a client ended before it was to.
        """
        self._workload.note(Event(WINDOW_CLOSED, OPERATION))
        await self._workload.stop_sending()
        await self._workload.drain()
        await self._workload.close()
        self._workload.raise_failure()

    def judge(self, spans: Sequence[Span]) -> Published:
        """Look through the histories; the spans are by the wall clock."""
        # Clients stamp what they note by a clock that they share with us, but that is not this one.
        ahead_s = time.time() - time.monotonic()
        times = PublishTimes(
            [Span(name, since - ahead_s, until - ahead_s) for name, since, until in spans]
        )
        verdict = check_folder(
            self._workload.folder,
            also=lambda record, news, judge: times.see(record),
            wait_in_window_s=_SEND_S_MAX,
        )
        figures = times.figures()
        if steady_s := times.p99_s(STEADY):
            figures["publish_p99_ratio"] = round(times.p99_s(OPERATION) / steady_s, 2)
        return Published(figures | _counts(verdict), wrong_of(verdict))


def _counts(verdict: Verdict) -> dict[str, float]:
    found = {rule.id: rule.violations for rule in verdict.rules}
    return {
        "messages_acknowledged": verdict.counts["acknowledged"],
        "messages_lost": found[Lost.id],
        "messages_twice": found[StoredTwice.id],
    }


def wrong_of(verdict: Verdict) -> list[str]:
    """What a verdict on messages says against a run."""
    wrong = [
        f"{rule.violations} messages: {rule.title}" for rule in verdict.rules if rule.violations
    ]
    wrong += [violation.as_text().strip() for violation in verdict.violations[:_SHOWN]]
    if not wrong and verdict.status is not Status.CLEAN:
        wrong = [f"nothing can be said of messages: {reason}" for reason in verdict.reasons]
    return wrong
