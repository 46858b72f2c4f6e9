"""Planted bugs of `anabranch.admin`."""

import json
from typing import Any
from urllib.parse import unquote

from anabranch.admin import WebInterface
from anabranch.admin.documents import Documents
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.openapi import describe
from anabranch.broker.topic_operations import skip_all
from anabranch.errors import StoreFailed
from anabranch.policies import JsonDocument, TenantInfo, encode
from anabranch.policies.paths import namespace_path
from anabranch.testing.planted import original, planted

_DOCUMENTS = "anabranch.admin.documents:Documents"


@planted("tenants_of_unknown_clusters", target="anabranch.admin.tenants:_checked")
async def tenants_of_unknown_clusters(call: Call) -> TenantInfo:
    """Nobody looks whether the clusters of a tenant exist."""
    return call.document(TenantInfo)


@planted("clusters_show_their_secrets", target="anabranch.admin.clusters:without_secrets")
def clusters_show_their_secrets(shown: dict[str, Any]) -> dict[str, Any]:
    """The document of a cluster is shown as it is stored."""
    return shown


@planted("namespaces_are_created_twice", target=f"{_DOCUMENTS}.create")
async def namespaces_are_created_twice(self: Documents, path: str, document: JsonDocument) -> bool:
    """A namespace that exists is begun anew, and its policies are gone."""
    if path == namespace_path("t1/n1"):
        await self.store.put(path, encode(document))
        return True
    made: bool = await original("namespaces_are_created_twice")(self, path, document)
    return made


@planted("grants_are_not_taken_back", target="anabranch.admin.namespaces:_change_grants")
async def grants_are_not_taken_back(call: Call, **changes: Any) -> None:
    """What a role may do is only ever added to."""

    def kept(alter: Any) -> Any:
        return lambda old: {**old, **alter(old)}

    await original("grants_are_not_taken_back")(
        call, **{name: kept(alter) for name, alter in changes.items()}
    )


@planted("policies_are_not_stored", target="anabranch.admin.policy_rows:_store")
async def policies_are_not_stored(call: Call, policy: Any, level: Any, value: Any) -> None:
    """A policy is answered as set, and forgotten."""
    del policy, value
    await level.read(call)


@planted("namespaces_go_before_topics", target="anabranch.policies.effective:_first")
def namespaces_go_before_topics(*choices: Any, default: Any) -> Any:
    """What a namespace says counts, whatever its topics say."""
    return next((choice for choice in reversed(choices) if choice is not None), default)


@planted(
    "policies_outlive_their_topic", target="anabranch.broker.policies.source:PolicySource.forget"
)
async def policies_outlive_their_topic(self: Any, topic: Any) -> None:
    """A topic of the same name begins with the policies of another one."""
    del self, topic


@planted("partitions_may_become_fewer", target="anabranch.admin.topics:_enough")
def partitions_may_become_fewer(count: int, present: int) -> None:
    """Partitions with messages in them are forgotten."""
    del count, present


@planted("subscriptions_are_created_twice", target="anabranch.admin.subscriptions:_is_new")
def subscriptions_are_created_twice(topic: Any, name: str) -> bool:
    """A subscription that exists is moved by whoever creates it again."""
    del topic, name
    return True


@planted("brokers_know_no_leader", target="anabranch.admin.brokers:own_id")
def brokers_know_no_leader(call: Call) -> str:
    """A broker does not know its own name."""
    del call
    return ""


@planted("endpoints_are_not_checked", target="anabranch.admin.application:WebInterface._authorize")
async def endpoints_are_not_checked(self: WebInterface, call: Call, endpoint: Endpoint) -> None:
    """Whoever is known may do everything."""
    del self, call, endpoint


@planted("schemas_are_forgotten", target="anabranch.broker.schemas:Schemas.versions")
async def schemas_are_forgotten(self: Any, topic: Any) -> list[Any]:
    """A topic has no schema, whatever was stored."""
    del self, topic
    return []


@planted("openapi_lacks_methods", target="anabranch.admin.table:describe")
def openapi_lacks_methods(endpoints: Any) -> dict[str, Any]:
    """Of every path one method is described."""
    by_path = {endpoint.path: endpoint for endpoint in endpoints}
    described: dict[str, Any] = describe(by_path.values())
    return described


@planted("statistics_lack_the_backlog", target="anabranch.admin.statistics:_of_subscription")
def statistics_lack_the_backlog(topic: Any, subscription: Any) -> dict[str, Any]:
    """Nothing ever waits."""
    shown: dict[str, Any] = original("statistics_lack_the_backlog")(topic, subscription)
    return {**shown, "msgBacklog": 0}


@planted(
    "internal_statistics_count_nothing", target="anabranch.admin.internal_statistics:_internal"
)
def internal_statistics_count_nothing(topic: Any) -> dict[str, Any]:
    """The ledgers of a topic are not shown."""
    shown: dict[str, Any] = original("internal_statistics_count_nothing")(topic)
    return {**shown, "ledgers": shown["ledgers"][:-1], "numberOfEntries": 0}


@planted("rates_are_not_measured", target="anabranch.broker.traffic:Traffic.measure")
def rates_are_not_measured(self: Any, elapsed_s: float) -> None:
    """Nothing seems to go through."""
    del self, elapsed_s


@planted("deliveries_are_not_counted", target="anabranch.broker.consumer:Consumer._count")
def deliveries_are_not_counted(self: Any, messages: int, size: int, again: int) -> None:
    """What is sent to consumers is not seen in any figure."""
    del self, messages, size, again


@planted("partitions_are_not_added_up", target="anabranch.admin.statistics:_add")
def partitions_are_not_added_up(known: Any, name: str, found: Any) -> None:
    """Of a partitioned topic the figures of one partition are shown."""
    known[name] = found


@planted("skips_are_only_answered", target="anabranch.broker.topic_operations:skip")
async def skips_are_only_answered(topic: Any, name: str, count: int) -> int:
    """Nothing is passed over."""
    del topic, name
    return count


@planted("expiry_takes_everything", target="anabranch.broker.topic_operations:_published_before")
def expiry_takes_everything(entry: Any, time_ms: int) -> bool:
    """Every message is old."""
    del entry, time_ms
    return True


@planted("peeks_look_at_the_first_alone", target="anabranch.broker.topic_operations:peek")
async def peeks_look_at_the_first_alone(topic: Any, name: str, place: int) -> Any:
    """The place that was asked for does not count."""
    del place
    return await original("peeks_look_at_the_first_alone")(topic, name, 1)


@planted("properties_are_headers", target="anabranch.admin.shown_messages:_said")
def properties_are_headers(metadata: Any) -> Any:
    """The key of a property becomes the name of a header, whatever it is."""
    yield from original("properties_are_headers")(metadata)
    for pair in metadata.properties:
        key = pair.key.encode("ascii", "replace").decode()
        yield f"PROPERTY-{key}", json.dumps(pair.value)


@planted("any_time_is_written_out", target="anabranch.admin.shown_messages:_moment")
def any_time_is_written_out(time_ms: int) -> str:
    """A time that no calendar has is shown as the number it is."""
    found: str = original("any_time_is_written_out")(time_ms)
    return str(time_ms) if found.startswith("9999") else found


@planted("topics_go_on_for_ever", target="anabranch.broker.topic_operations:terminate")
async def topics_go_on_for_ever(topic: Any) -> Any:
    """The end of a topic is only answered."""
    return topic.ledger.last_confirmed


@planted("truncating_keeps_what_is_stored", target="anabranch.broker.topic_operations:truncate")
async def truncating_keeps_what_is_stored(topic: Any) -> None:
    """Everything is passed over, and stays for as long as retention says."""
    for name in list(topic.subscriptions):
        await skip_all(topic, name)
    topic.ledger.tend()


@planted("unloading_is_only_answered", target="anabranch.broker.topics:Topics.unload")
async def unloading_is_only_answered(self: Any, name: Any) -> bool:
    """A topic stays open."""
    del self, name
    return True


@planted("paths_are_decoded_twice", target="anabranch.admin.router:_decoded")
def paths_are_decoded_twice(part: bytes) -> str:
    """What is still encoded is decoded again."""
    once: str = original("paths_are_decoded_twice")(part)
    return unquote(once)


@planted("bodies_are_believed", target="anabranch.admin.endpoints:parse_json")
def bodies_are_believed(data: bytes) -> Any:
    """A body that is no JSON is taken for a fault of the server."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreFailed(f"the body cannot be read: {error}") from error


@planted("numbers_are_believed", target="anabranch.admin.endpoints:Call.number")
def numbers_are_believed(self: Call, name: str) -> int:
    """What is no number in a path is taken for a fault of the server."""
    try:
        return int(self.names[name])
    except ValueError as error:
        raise StoreFailed(f"no number: {error}") from error


@planted("settings_are_shown_as_they_are", target="anabranch.server.assembly:shown")
def settings_are_shown_as_they_are(name: str, value: object) -> str:
    """Passwords in URLs are shown to whoever asks for the settings."""
    del name
    return str(value)
