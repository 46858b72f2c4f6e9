"""Planted bugs of `anabranch.telemetry`."""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.telemetry.logs import JsonFormat, Logger
from anabranch.telemetry.loop_lag import CollectorPauses, LoopLag
from anabranch.telemetry.metrics import Metric
from anabranch.testing.planted import original, planted

_LOGS = "anabranch.telemetry.logs"
_LOOP_LAG = "anabranch.telemetry.loop_lag"


@planted("labels_are_not_escaped", target="anabranch.telemetry.metrics:_escape")
def labels_are_not_escaped(text: str, *, quotes: bool) -> str:
    """A quote or a line break in a text breaks the page of metrics."""
    del quotes
    return text


@planted("bound_fields_are_lost", target=f"{_LOGS}:Logger.bind")
def bound_fields_are_lost(self: Logger, **fields: Any) -> Logger:
    """Only the fields that were bound last are written."""
    return Logger(self._logger, fields)


@planted("fields_replace_the_event", target=f"{_LOGS}:JsonFormat.format")
def fields_replace_the_event(self: JsonFormat, record: logging.LogRecord) -> str:
    """A field called like the event hides it."""
    document = json.loads(original("fields_replace_the_event")(self, record))
    for key in [key for key in document if key.endswith("_")]:
        document[key.removesuffix("_")] = document.pop(key)
    return json.dumps(document)


@planted("deep_secrets_are_shown", target=f"{_LOGS}:_redact_value")
def deep_secrets_are_shown(value: Any) -> Any:
    """Only secrets at the top are masked."""
    return value


@planted("figures_are_written_at_once", target="anabranch.telemetry.metrics:_lines")
def figures_are_written_at_once(metrics: Iterable[Metric]) -> Iterator[str]:
    """The page of figures is one long line to whoever hands the loop over line by line."""
    yield "".join(original("figures_are_written_at_once")(metrics))


@planted("lag_is_not_seen", target=f"{_LOOP_LAG}:LoopLag._fired")
def lag_is_not_seen(self: LoopLag, loop: asyncio.AbstractEventLoop) -> None:
    """Timers that fire late are taken for punctual."""
    self._schedule(loop)


@planted("pauses_are_not_seen", target=f"{_LOOP_LAG}:CollectorPauses._collecting")
def pauses_are_not_seen(self: CollectorPauses, phase: str, info: dict[str, Any]) -> None:
    """Collections of garbage are counted, and take no time."""
    if phase == "stop":
        self._count[info["generation"]] += 1
