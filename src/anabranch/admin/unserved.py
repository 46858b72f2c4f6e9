"""What namespaces and topics have in Pulsar and not here: compaction, offloading, filters.

Its pages are there, so that tools get an answer they understand. What somebody else has set in a
store that is shared is shown and can be taken back; setting it is refused, with the code and, where
Pulsar has words for it, the words of a Pulsar in which the feature is turned off.
What clusters and brokers have in Pulsar and not here is in `unserved_by_clusters`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from anabranch.admin import namespaces, topic_policies
from anabranch.admin.clusters import existing_cluster
from anabranch.admin.endpoints import EMPTY, Call, Endpoint, Handler
from anabranch.admin.owners import opened
from anabranch.admin.policy_rows import as_json
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topics import message_id
from anabranch.errors import InvalidName, NotFound
from anabranch.ids import Position, check_part
from anabranch.policies import LocalPolicies
from anabranch.policies.paths import local_policies_path, tenant_path
from anabranch.security import Right

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_PAUSING: Final = "dispatcherPauseOnAckStatePersistent"
_Check = Callable[[Call], Awaitable[object]]
"""Refuses a path that names nothing."""


def refused(method: str, path: str, what: str, check: _Check, right: Right) -> Endpoint:
    """A row that says that a feature is not there, to whoever names something that is."""

    async def refuse(call: Call) -> object:
        await check(call)
        return not_supported(what)

    return Endpoint(method, path, right, refuse, f"Refused: {what} is not supported")


def not_supported(what: str) -> object:
    """Say in Pulsar's way that a feature is not there.

    Raises:
        RestRefused: always.
    """
    raise RestRefused(405, f"{what} is not supported by this broker")


# --- namespaces ------------------------------------------------------------------------------

_SHOWN: Final = {
    "offloadThreshold": "offload_threshold",
    "offloadThresholdInSeconds": "offload_threshold_s",
    "offloadDeletionLagMs": "offload_deletion_lag_ms",
    "offloadPolicies": "offload_policies",
    "resourcegroup": "resource_group_name",
    "entryFilters": "entry_filters",
    _PAUSING: "pauses_for_acknowledgements",
}
"""Pages of policies that this broker does not live by, and the fields they show."""
_TAKEN_BACK: Final = {
    "offloadDeletionLagMs": "offload_deletion_lag_ms",
    "removeOffloadPolicies": "offload_policies",
    "resourcegroup": "resource_group_name",
    "entryFilters": "entry_filters",
    _PAUSING: "pauses_for_acknowledgements",
}
_OF_THE_CLUSTER: Final = {
    "antiAffinity": "namespace_anti_affinity_group",
    "persistence/bookieAffinity": "bookie_affinity_group",
}
"""The same of the document that only the own cluster needs; these are shown and taken back."""
_UNSET: Final[dict[str, object]] = {_PAUSING: False, "shadowTopics": []}
"""What is shown where nothing is set, if it is not an empty answer."""
_NOT_SET: Final = (
    ("PUT", "offloadThreshold", "offloading"),
    ("PUT", "offloadThresholdInSeconds", "offloading"),
    ("PUT", "offloadDeletionLagMs", "offloading"),
    ("POST", "offloadPolicies", "offloading"),
    ("GET", "scanOffloadedLedgers", "offloading"),
    ("POST", "entryFilters", "filtering of entries"),
    ("POST", "antiAffinity", "placing namespaces apart"),
    ("POST", "persistence/bookieAffinity", "placing namespaces on some bookies"),
    ("POST", _PAUSING, "pausing for acknowledgements"),
    ("POST", "migration", "moving a namespace to another cluster"),
)


async def _local(call: Call) -> LocalPolicies:
    await namespaces.existing(call)
    found = await call.documents.get(LocalPolicies, local_policies_path(call.namespace))
    return found or LocalPolicies()


def _shown(read: Callable[[Call], Awaitable[Any]], page: str, field: str) -> Handler:
    unset = _UNSET.get(page, EMPTY)

    async def get(call: Call) -> object:
        found = getattr(await read(call), field)
        return unset if found is None else as_json(found)

    return get


def _taken_back(change: Callable[..., Awaitable[None]], field: str) -> Handler:
    async def clear(call: Call) -> None:
        await change(call, **{field: None})

    return clear


async def _change_local(call: Call, **changes: Any) -> None:
    await namespaces.existing(call)
    path = local_policies_path(call.namespace)
    try:
        await call.documents.change(LocalPolicies, path, lambda old: replace(old, **changes))
    except NotFound:
        return  # nothing was ever set


async def _apart_from(call: Call) -> object:
    """The namespaces of a tenant that somebody else wants apart from each other."""
    await existing_cluster(call, status=412)
    # What asks by the older path has the older word for a tenant.
    tenant = call.query.get("tenant", call.query.get("property", ""))
    try:
        names = await call.served.metadata.children(tenant_path(check_part("Tenant", tenant)))
    except InvalidName:
        raise RestRefused(412, "Tenant name is not valid") from None
    found = []
    for name in names:
        path = local_policies_path(f"{tenant}/{name}")
        local = await call.documents.get(LocalPolicies, path)
        if local is not None and local.namespace_anti_affinity_group == call.names["group"]:
            found.append(f"{tenant}/{name}")
    return found


async def _no_such_group(call: Call) -> object:
    await namespaces.existing(call)
    raise RestRefused(412, "ResourceGroup does not exist")


def _of_namespaces() -> list[Endpoint]:
    rows = [
        refused(method, f"{_NAMESPACE}/{page}", what, namespaces.existing, Right.ADMINISTER)
        for method, page, what in _NOT_SET
    ]

    def add(method: str, page: str, serve: Handler, words: str) -> None:
        path = f"{_NAMESPACE}/{page}"
        rows.append(Endpoint(method, path, Right.ADMINISTER, serve, words))

    for page, field in _SHOWN.items():
        add("GET", page, _shown(namespaces.existing, page, field), f"{page}, which is not lived by")
    for page, field in _TAKEN_BACK.items():
        add("DELETE", page, _taken_back(namespaces.change, field), f"Take {page} back")
    for page, field in _OF_THE_CLUSTER.items():
        add("GET", page, _shown(_local, page, field), f"{page}, which is not lived by")
        add("DELETE", page, _taken_back(_change_local, field), f"Take {page} back")
    add("POST", "resourcegroup/{group}", _no_such_group, "Refused: there are no groups")
    for version in ("/v2", ""):  # tools of Pulsar 4 ask by the older path
        apart = f"/admin{version}/namespaces/{{cluster}}/antiAffinity/{{group}}"
        rows.append(Endpoint("GET", apart, Right.SUPERUSER, _apart_from, "Namespaces placed apart"))
    return rows


# --- topics ----------------------------------------------------------------------------------

_SHOWN_OF_TOPICS: Final = {
    "shadowTopics": "shadow_topics",
    "offloadPolicies": "offload_policies",
    "entryFilters": "entry_filters",
    _PAUSING: "pauses_for_acknowledgements",
}
"""Pages of policies that topics do not live by: shown and taken back."""
_NOT_SET_OF_TOPICS: Final = (
    ("PUT", "shadowTopics", "shadowing of topics"),
    ("POST", "offloadPolicies", "offloading"),
    ("POST", "entryFilters", "filtering of entries"),
    ("POST", _PAUSING, "pausing for acknowledgements"),
)
_NOT_RUN: Final = {"status": "NOT_RUN", "lastError": ""}


async def _compaction_status(call: Call) -> object:
    """Whether a topic was compacted: it never was."""
    await opened(call)
    return _NOT_RUN


async def _offload_status(call: Call) -> object:
    """Whether a topic was offloaded: it never was."""
    await opened(call)
    return {**_NOT_RUN, "firstUnoffloadedMessage": message_id(Position(-1, -1))}


async def _is_replicated(call: Call) -> object:
    """Whether a subscription is the same in other clusters: it never is."""
    await _subscription(call)
    return {str(call.topic): False}


async def _replicate(call: Call) -> None:
    """Let a subscription be the same in other clusters: it already is not."""
    wanted = call.json()
    await _subscription(call)
    if wanted is not False:
        not_supported("replication of subscriptions")


async def _subscription(call: Call) -> None:
    if call.subscription not in (await opened(call)).subscriptions:
        raise RestRefused(404, f"Subscription {call.subscription} not found for topic {call.topic}")


def _of_topics() -> list[Endpoint]:
    administer = Right.ADMINISTER
    rows = [
        refused(method, f"{_TOPIC}/{page}", what, topic_policies.existing, administer)
        for method, page, what in _NOT_SET_OF_TOPICS
    ]
    rows += [
        refused("PUT", f"{_TOPIC}/{page}", what, opened, administer)
        for page, what in (("compaction", "compaction"), ("offload", "offloading"))
    ]

    def add(method: str, page: str, right: Right, serve: Handler, words: str) -> None:
        rows.append(Endpoint(method, f"{_TOPIC}/{page}", right, serve, words))

    for page, field in _SHOWN_OF_TOPICS.items():
        words = f"{page} of a topic, which is not lived by"
        add("GET", page, administer, _shown(topic_policies.existing, page, field), words)
        clear = _taken_back(topic_policies.change, field)
        add("DELETE", page, administer, clear, f"Take {page} of a topic back")
    add("GET", "compaction", administer, _compaction_status, "Whether it was compacted")
    add("GET", "offload", administer, _offload_status, "Whether it was offloaded")
    status = "subscription/{subscription}/replicatedSubscriptionStatus"
    add("GET", status, Right.CONSUME, _is_replicated, "Whether it is in other clusters")
    add("POST", status, Right.CONSUME, _replicate, "Refused: replication is not supported")
    return rows


UNSERVED_ENDPOINTS: Final = (*_of_namespaces(), *_of_topics())
