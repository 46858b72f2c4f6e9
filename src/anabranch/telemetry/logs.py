"""Structured logs on the standard library: a constant event name and key=value fields.

    logger = get_logger("broker").bind(topic=str(name))
    logger.info("topic.opened", entries=12)

Fields are bound once and carried along. Values of keys that name a secret, and users and passwords
in URLs, are masked before any handler sees them. `configure` is for the process that owns standard
error; libraries never call it.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from anabranch.errors import MASK, without_user_info

_ROOT: Final = "anabranch"
_FIELDS: Final = "anabranch_fields"
_SECRET_WORDS: Final = ("token", "password", "secret", "credentials")


def redact(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which the values of secret keys are masked, at any depth."""
    return {key: MASK if _is_secret(key) else _redact_value(fields[key]) for key in fields}


def _redact_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact({str(key): inner for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return [_redact_value(inner) for inner in value]
    return without_user_info(value) if isinstance(value, str) else value


def _is_secret(key: str) -> bool:
    lowered = key.lower()
    return any(word in lowered for word in _SECRET_WORDS)


class Logger:
    """Writes events with the fields it was bound to."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> "Logger":
        """Return a logger that adds these fields to every event."""
        return Logger(self._logger, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: Any) -> None:
        """Something only a developer wants to know."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Something an operator may want to know."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Something an operator should look at some time."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, *, cause: BaseException | None = None, **fields: Any) -> None:
        """Something that must be looked at; `cause` is written with its traceback."""
        self._write(logging.ERROR, event, fields, cause)

    def _write(
        self, level: int, event: str, fields: dict[str, Any], cause: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            shown = redact({**self._fields, **fields})
            # The event is an argument and not the format: a "%" in it stays a "%".
            self._logger.log(level, "%s", event, exc_info=cause, extra={_FIELDS: shown})


def get_logger(name: str) -> Logger:
    """Return the logger of one part of the system, such as "broker"."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"), {})


class TextFormat(logging.Formatter):
    """One line per event for people, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        fields: Mapping[str, Any] = getattr(record, _FIELDS, {})
        words = [_time_of(record), record.levelname, _source_of(record), record.getMessage()]
        words += [f"{key}={_text_value(value)}" for key, value in fields.items()]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormat(logging.Formatter):
    """One JSON object per line for machines."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        document: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": _source_of(record),
            "event": record.getMessage(),
        }
        fields: Mapping[str, Any] = getattr(record, _FIELDS, {})
        for key, value in fields.items():
            # A field must not replace the time or the event it belongs to.
            document[f"{key}_" if key in document else key] = value
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str, ensure_ascii=False)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _source_of(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{_ROOT}.")


def _text_value(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and not any(c in text for c in " \"'=")
    return text if plain and text else json.dumps(text, ensure_ascii=True)


def configure(*, level: str, style: str, stream: TextIO) -> None:
    """Send the whole process's logs to a stream: ours from `level` on, others' from warnings on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormat() if style == "json" else TextFormat())
    everything = logging.getLogger()
    for old in list(everything.handlers):
        everything.removeHandler(old)
    everything.addHandler(handler)
    everything.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(level.upper())
