"""One policy, one row: the endpoints that read, set and clear a field of a document.

The documents are those of a namespace or of a topic; a `Level` says how they are come by.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from anabranch.admin.endpoints import EMPTY, Call, Endpoint
from anabranch.admin.policy_values import Read, number
from anabranch.policies import JsonDocument, NamespacePolicies, TopicPolicies, to_json
from anabranch.policies.effective import EffectivePolicies, resolve
from anabranch.policies.paths import namespace_path, topic_policies_path
from anabranch.security import Right

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its page, its field, and how its value is read."""

    page: str
    field: str
    read: Read
    method: str = "POST"
    cleared: Any = None
    """What the field is when nothing was decided."""
    unset: Any = EMPTY
    """What is answered then."""
    can_be_cleared: bool = True
    per_cluster: bool = False
    """Kept for each cluster by its name; this cluster's own is read and set."""
    applied: Callable[[EffectivePolicies], Any] | None = None
    """What counts in the end, for whoever asks for that."""


def bounded(page: str, field: str, **more: Any) -> Policy:
    """A policy that is a number of 0 or more."""
    return Policy(page, field, number(page), **more)


@dataclass(frozen=True, slots=True)
class Level:
    """Whose policies they are."""

    path: str
    words: str
    read: Callable[[Call], Awaitable[JsonDocument]]
    change_by: Callable[[Call, Callable[[Any], Any]], Awaitable[None]]
    """With the call, and what makes the new document of the one that is there."""


def endpoints_of(policy: Policy, level: Level) -> list[Endpoint]:
    """The two or three rows that a policy has at a level."""

    async def get(call: Call) -> object:
        value = getattr(await level.read(call), policy.field)
        if policy.per_cluster:
            value = value.get(call.served.cluster)
        if policy.applied is not None and call.flag("applied"):
            value = policy.applied(await what_counts(call))
        return policy.unset if value is None else as_json(value)

    async def put(call: Call) -> None:
        value = policy.read(call)
        await _store(call, policy, level, policy.cleared if value is None else value)

    async def clear(call: Call) -> None:
        await _store(call, policy, level, policy.cleared)

    path, page = f"{level.path}/{policy.page}", policy.page
    rows = [
        Endpoint("GET", path, Right.ADMINISTER, get, f"{page} of a {level.words}"),
        Endpoint(policy.method, path, Right.ADMINISTER, put, f"Set {page} of a {level.words}"),
    ]
    if policy.can_be_cleared:
        words = f"Clear {page} of a {level.words}"
        rows.append(Endpoint("DELETE", path, Right.ADMINISTER, clear, words))
    return rows


async def what_counts(call: Call) -> EffectivePolicies:
    """The policies of the topic in the path, as the store has them: the broker may hear later."""
    namespace = await call.documents.get(NamespacePolicies, namespace_path(call.namespace))
    own = await call.documents.get(TopicPolicies, topic_policies_path(call.topic))
    defaults, cluster = call.broker.policies.defaults, call.served.cluster
    return resolve(defaults, namespace or NamespacePolicies(), own, cluster=cluster)


def as_json(value: Any) -> Any:
    """A policy as it is answered."""
    if isinstance(value, JsonDocument):
        return to_json(value)
    return list(value) if isinstance(value, tuple) else value


async def _store(call: Call, policy: Policy, level: Level, value: Any) -> None:
    def changed(old: Any) -> Any:
        new = value
        if policy.per_cluster:
            kept = without(getattr(old, policy.field), call.served.cluster)
            new = kept if value is None else {**kept, call.served.cluster: value}
        return replace(old, **{policy.field: new})

    await level.change_by(call, changed)


def without(kept: Mapping[str, T], key: str) -> dict[str, T]:
    """All but one."""
    return {name: kept[name] for name in kept if name != key}
