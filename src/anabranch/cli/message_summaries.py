"""What became of one `produce` or `consume`, for people, for machines and as an exit code. Pure."""

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from anabranch.client import Message

INTERRUPTED: Final = 130
"""Exit code of a command that was ended by Ctrl-C before it was done, as shells have it."""


@dataclass(slots=True)
class Published:
    """What became of the messages of one `produce`."""

    topic: str
    sent: int = 0
    acknowledged: int = 0
    failures: set[str] = field(default_factory=set)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 only if everything was acknowledged and nothing was cut short."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if self.acknowledged == self.sent else 1

    def as_json(self) -> dict[str, Any]:
        """Return the summary for machines."""
        return {
            "topic": self.topic,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "failures": sorted(self.failures),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the summary for people."""
        text = f"published {self.acknowledged} of {self.sent} messages to {self.topic}"
        if self.failures:
            text += f"; not acknowledged: {', '.join(sorted(self.failures))}"
        return text


@dataclass(slots=True)
class Received:
    """What came out of one `consume`."""

    topic: str
    wanted: int | None
    count: int = 0
    interrupted: bool = False

    @property
    def missing(self) -> int | None:
        """How many are still wanted; None: as many as come."""
        return None if self.wanted is None else self.wanted - self.count

    @property
    def exit_code(self) -> int:
        """0 if everything wanted came, or if it was to go on until Ctrl-C."""
        if not self.missing:
            return 0
        return INTERRUPTED if self.interrupted else 1

    def as_text(self) -> str:
        """Return the summary for people."""
        return f"received {self.count} of {self.wanted} messages from {self.topic}"


class Wanted(NamedTuple):
    """What a `consume` is to print."""

    number: int | None
    """How many messages; None: until Ctrl-C."""
    as_json: bool
    idle_s: float | None
    """How long to wait for the next one; None: for ever."""


def line_of(message: "Message", *, as_json: bool) -> bytes:
    """A message as it is printed.

    Raises:
        ProtocolError: if it is damaged.
        ConfigError: if it cannot be read here.
    """
    return message_as_json(message).encode() if as_json else message.value


def message_as_json(message: "Message") -> str:
    """All that is known of a message, as one line."""
    document: dict[str, Any] = {
        "topic": str(message.topic),
        "ledger_id": message.id.ledger_id,
        "entry_id": message.id.entry_id,
        "batch_index": message.id.batch_index,
        "key": message.key or None,
        "properties": message.properties,
        "publish_time_ms": message.publish_time_ms,
        "redelivery_count": message.redelivery_count,
    }
    try:
        document["payload"] = message.value.decode()
    except UnicodeDecodeError:
        document["payload_base64"] = base64.b64encode(message.value).decode()
    return json.dumps(document, ensure_ascii=False)
