"""What a history is made of: one small tuple per fact. Pure; `record_lines` puts them on disk.

A send has two records, `Send` before it is handed to the client library and `Sent` when its
outcome is known; one without the other is a send whose outcome nobody knows.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Outcome(StrEnum):
    """How an operation ended. A timeout or a lost connection is unknown, never a failure."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class SubscriptionType(StrEnum):
    """Pulsar's four ways to share a subscription."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"

    @property
    def is_ordered(self) -> bool:
        """Whether it promises the order of each key."""
        return self is not SubscriptionType.SHARED


class AckKind(StrEnum):
    """How deliveries are acknowledged."""

    INDIVIDUAL = "individual"
    CUMULATIVE = "cumulative"


CONNECTION_LOST: Final = "connection-lost"
"""A client saw its connection gone; its library sends again what was in flight."""
CONNECTION_RESTORED: Final = "connection-restored"
CONSUMER_CONNECTION_LOST: Final = "consumer-connection-lost"
REDELIVERY_ASKED: Final = "redelivery-asked"
"""A consumer is about to ask for what it holds unacknowledged once more."""
CURSOR_MOVED: Final = "cursor-moved"
"""A subscription is about to be put elsewhere by a seek: its cursor may go back once."""
SERVER_KILLED: Final = "server-killed"
"""The owner crashed, or will in a moment; it is back where the declared window closes."""
OWNER_IN_DOUBT: Final = "owner-in-doubt"
"""The owner was cut off: it goes on answering, and what it did not confirm may be undone at any
moment until the declared window closes."""
WINDOW_OPENED: Final = "window-opened"
"""From here on trouble is expected, until `WINDOW_CLOSED`."""
WINDOW_CLOSED: Final = "window-closed"


class Place(NamedTuple):
    """Where a message is stored."""

    partition: int
    ledger: int
    entry: int
    batch: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.partition}:{self.batch}"


class MessageId(NamedTuple):
    """Which message, wherever it is stored."""

    producer: int
    epoch: int
    seq: int


class Send(NamedTuple):
    """A message is about to be handed to the client library."""

    producer: int
    epoch: int
    seq: int
    key: str
    crc: int
    t: float = 0.0


class Sent(NamedTuple):
    """The library reported the outcome of a send."""

    producer: int
    epoch: int
    seq: int
    outcome: Outcome
    place: Place | None = None
    error: str = ""
    t: float = 0.0


class Delivery(NamedTuple):
    """A consumer received a message that identifies itself."""

    sub: str
    consumer: str
    producer: int
    epoch: int
    seq: int
    key: str
    crc: int
    place: Place
    t: float = 0.0


class Damaged(NamedTuple):
    """A consumer received bytes that are no message of this run."""

    sub: str
    consumer: str
    place: Place
    error: str
    t: float = 0.0


class Ack(NamedTuple):
    """A consumer acknowledged deliveries; `ok` (confirmed) only if the broker answered."""

    sub: str
    consumer: str
    kind: AckKind
    outcome: Outcome
    places: tuple[Place, ...]
    """What was acknowledged; a cumulative one covers all that is not above its places."""
    t: float = 0.0


class CursorAt(NamedTuple):
    """Where the server says that a subscription's mark-delete position is."""

    sub: str
    place: Place
    asked: float
    """When the question was put; the answer is of a moment between then and `t`."""
    t: float = 0.0


class Subscribed(NamedTuple):
    """The durable subscription exists."""

    sub: str
    consumer: str
    type: SubscriptionType
    t: float = 0.0


class Drained(NamedTuple):
    """What the subscription owes had its time to arrive: what is missing now is lost."""

    sub: str
    how: str
    t: float = 0.0


class Event(NamedTuple):
    """A fault or a phase, so that a violation can be put beside what happened then."""

    name: str
    about: str = ""
    producer: int | None = None
    sub: str = ""
    """The subscription it concerns; without one, all of them."""
    t: float = 0.0


class End(NamedTuple):
    """The client closed its history by itself."""

    t: float = 0.0


Record = Send | Sent | Delivery | Damaged | Ack | CursorAt | Subscribed | Drained | Event | End
