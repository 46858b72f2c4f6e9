"""What a real Pulsar writes as policies, and what it calls a compatible schema: as we do."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from anabranch.policies import NamespacePolicies, from_json, to_json
from anabranch.policies.effective import PolicyDefaults, resolve
from anabranch.testing.schema_changes import CHANGES, definition
from anabranch.testing.servers import pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
STRATEGIES = ("BACKWARD", "FORWARD", "FULL", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE")


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with pulsar_standalone() as running:
        yield running


def ask(server: Standalone, method: str, path: str, body: object = None) -> Any:
    status, said = tell(server, method, path, body)
    assert status < 300, f"{method} {path}: {status} {said!r}"
    return json.loads(said) if said else None


def tell(server: Standalone, method: str, path: str, body: object) -> tuple[int, bytes]:
    where = urlsplit(server.web_url)
    assert where.hostname is not None
    connection = HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        connection.request(method, f"/admin/v2/{path}", text, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.goal("core.B11", part="documents")
def test_policies_of_a_real_namespace_are_understood_and_kept(server: Standalone) -> None:
    ask(server, "PUT", "namespaces/public/ruled", {"bundles": {"numBundles": 3}})
    rules: dict[str, object] = {
        "retention": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100},
        "messageTTL": 120,
        "backlogQuota": {"limitSize": 5_000_000, "policy": "consumer_backlog_eviction"},
        "autoTopicCreation": {
            "allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4
        },
        "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
        "publishRate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000},
        "dispatchRate": {"dispatchThrottlingRateInMsg": 20, "dispatchThrottlingRateInByte": -1},
        "inactiveTopicPolicies": {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 30,
            "deleteWhileInactive": True,
        },
        "maxProducersPerTopic": 2,
        "maxConsumersPerTopic": 3,
        "deduplication": True,
        "schemaValidationEnforced": True,
        "delayedDelivery": {"tickTime": 500, "active": True},
        "permissions/reader": ["consume"],
    }  # fmt: skip
    for name, body in rules.items():
        ask(server, "POST", f"namespaces/public/ruled/{name}", body)
    ask(server, "PUT", "namespaces/public/ruled/schemaCompatibilityStrategy", "FORWARD")
    document = ask(server, "GET", "namespaces/public/ruled")
    policies = from_json(NamespacePolicies, document)
    assert to_json(policies) == {key: value for key, value in document.items() if value is not None}
    assert policies.auth_policies.namespace_auth == {"reader": ("consume",)}
    assert policies.auto_topic_creation is not None
    assert policies.auto_topic_creation.partitions == 4
    counts = resolve(PolicyDefaults(), policies, cluster="standalone")
    assert counts.retention.time_minutes == 60
    assert counts.message_ttl_s == 120
    assert counts.storage_quota.bytes_max == 5_000_000
    assert counts.storage_quota.policy == "consumer_backlog_eviction"
    assert not counts.auto_subscription_creation
    assert counts.publish_rate.messages == 10
    assert counts.dispatch_rate.messages == 20
    assert counts.inactive_topics.inactive_s_max == 30
    assert (counts.producers_max, counts.consumers_max) == (2, 3)
    assert counts.deduplication_enabled
    assert counts.schema_validation_enforced
    assert counts.schema_compatibility_strategy == "FORWARD"
    assert counts.delayed_delivery.tick_time_ms == 500


@pytest.mark.goal("core.B10", part="compatibility strategies")
def test_a_real_broker_judges_changes_of_schemas_by_the_same_table(server: Standalone) -> None:
    for number, change in enumerate(CHANGES):
        body = {"type": "AVRO", "schema": definition(change.old).decode(), "properties": {}}
        ask(server, "POST", f"schemas/public/default/change-{number}/schema", body)
    expected, found = {}, {}
    for strategy in STRATEGIES:
        ask(server, "PUT", "namespaces/public/default/schemaCompatibilityStrategy", strategy)
        for number, change in enumerate(CHANGES):
            allowed = {
                "BACKWARD": change.backward,
                "FORWARD": change.forward,
                "FULL": change.backward and change.forward,
                "ALWAYS_COMPATIBLE": True,
                "ALWAYS_INCOMPATIBLE": False,
            }
            body = {"type": "AVRO", "schema": definition(change.new).decode(), "properties": {}}
            path = f"schemas/public/default/change-{number}/compatibility"
            status, said = tell(server, "POST", path, body)
            assert status < 300 or b"IncompatibleSchemaException" in said, said
            expected[strategy, change.name] = allowed[strategy]
            found[strategy, change.name] = status < 300
    assert found == expected
