"""How the value of a policy is read from a request, and what is said to what is none."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from anabranch.admin.endpoints import Call, as_document
from anabranch.admin.refusals import RestRefused
from anabranch.errors import InputError
from anabranch.policies import (
    AutoTopicCreation,
    BacklogQuota,
    InactiveTopics,
    JsonDocument,
    Persistence,
    RetentionRule,
)
from anabranch.policies.json_documents import NARROW_MAX, check_numbers
from anabranch.policies.rules import QUOTA_ACTIONS, QUOTA_TYPES

SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
D = TypeVar("D", bound=JsonDocument)
Read = Callable[[Call], Any]
"""Makes a field's value of the request."""


def number(name: str, low: int = 0, high: int = NARROW_MAX) -> Read:
    """A whole number of at least `low`."""

    def read(call: Call) -> int:
        value = call.json()
        if type(value) is not int:
            raise RestRefused(400, f"the body has to be a whole number, for {name}")
        if value < low:
            raise RestRefused(412, f"{name} must be {low} or more")
        if value > high:
            raise RestRefused(412, f"{name} must be {high} or less")
        return value

    return read


def without_compaction(call: Call) -> int:
    """The bytes after which a topic is compacted: 0, which is never."""
    if number("compactionThreshold")(call):
        raise RestRefused(405, "compaction is not supported by this broker")
    return 0


def number_or_none(name: str) -> Read:
    """The same, or nothing at all."""
    some = number(name)
    return lambda call: None if call.json() is None else some(call)


def flag(call: Call) -> bool:
    """True or false."""
    value = call.json()
    if not isinstance(value, bool):
        raise RestRefused(400, "the body has to be true or false")
    return value


def seconds_to_live(call: Call) -> int:
    """Seconds until a message expires, in the body."""
    return _not_negative(call.json())


def seconds_to_live_in_query(call: Call) -> int | None:
    """The same in the query, as it is for topics; None if there are none."""
    text = call.query.get("messageTTL")
    if text is None:
        return None
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 10:
        raise RestRefused(404, "messageTTL is no whole number of seconds")
    return _not_negative(int(text))


def _not_negative(value: object) -> int:
    if type(value) is not int:
        raise RestRefused(400, "the body has to be a whole number of seconds")
    if value < 0:
        raise RestRefused(412, "Invalid value for message TTL, message TTL must >= 0")
    if value > NARROW_MAX:
        raise RestRefused(412, f"Invalid value for message TTL, message TTL must <= {NARROW_MAX}")
    return value


def choice(*choices: str) -> Read:
    """One of some words."""

    def read(call: Call) -> str:
        value = call.json()
        if value not in choices:
            raise RestRefused(400, f"the body has to be one of {', '.join(choices)}")
        return str(value)

    return read


def document(kind: type[JsonDocument]) -> Read:
    """A document that does not contradict itself; None if there is no body."""

    def read(call: Call) -> JsonDocument | None:
        value = call.json()
        if value is None:
            return None
        return checked(as_document(kind, value))

    return read


def checked(found: D) -> D:
    """A document that can be stored, and read by Pulsar too.

    Raises:
        RestRefused: naming what contradicts itself, or is no number of Pulsar's.
    """
    try:
        check_numbers(found)
        if isinstance(found, RetentionRule | AutoTopicCreation | Persistence | InactiveTopics):
            found.check()
    except InputError as error:
        status = 412 if isinstance(found, AutoTopicCreation) else 400
        raise RestRefused(status, str(error)) from None
    return found


def subscription_types(call: Call) -> tuple[str, ...]:
    """Names of types of subscriptions."""
    value = call.json()
    if not isinstance(value, list) or not all(each in SUBSCRIPTION_TYPES for each in value):
        raise RestRefused(400, f"the body has to be a list of {', '.join(SUBSCRIPTION_TYPES)}")
    return tuple(value)


def properties(call: Call) -> dict[str, str]:
    """An object of texts."""
    value = call.json()
    texts = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if not texts:
        raise RestRefused(400, "the body has to be an object of texts")
    return dict(value)


def quota(call: Call) -> BacklogQuota:
    """What may be unacknowledged."""
    found = checked(call.document(BacklogQuota))
    if found.policy not in QUOTA_ACTIONS:
        raise RestRefused(400, f"policy has to be one of {', '.join(QUOTA_ACTIONS)}")
    return found


def quota_type(call: Call) -> str:
    """Which quota a request is about."""
    kind = call.query.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        raise RestRefused(400, f"backlogQuotaType has to be one of {', '.join(QUOTA_TYPES)}")
    return kind
