"""Policy documents are Pulsar's JSON, typed; nothing that is not understood gets lost."""

import json

import pytest

from anabranch.errors import FormatError, InputError
from anabranch.ids import TopicName
from anabranch.policies import (
    AutoTopicCreation,
    BacklogQuota,
    LocalPolicies,
    NamespacePolicies,
    PartitionedTopic,
    RetentionRule,
    TenantInfo,
    TopicPolicies,
    decode,
    encode,
    even_bundles,
    from_json,
    to_json,
)
from anabranch.policies.paths import partitioned_topic_path, topic_policies_path

OF_PULSAR = {
    "auth_policies": {
        "namespace_auth": {"reader": ["consume"]},
        "destination_auth": {},
        "subscription_auth_roles": {},
    },
    "replication_clusters": ["standalone"],
    "allowed_clusters": [],
    "bundles": {
        "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
        "numBundles": 4,
    },
    "backlog_quota_map": {
        "destination_storage": {
            "limit": 1000, "limitSize": 1000, "limitTime": 0, "policy": "producer_exception"
        }
    },
    "clusterDispatchRate": {},
    "topicDispatchRate": {
        "standalone": {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        }
    },
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "publishMaxMessageRate": {
        "standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
    },
    "latency_stats_sample_rate": {},
    "message_ttl_in_seconds": 3600,
    "retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema_with_replicator": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}  # fmt: skip


def test_a_namespace_of_pulsar_is_read_and_written_the_same() -> None:
    policies = decode(NamespacePolicies, json.dumps(OF_PULSAR).encode())
    assert policies.message_ttl_s == 3600
    assert policies.retention == RetentionRule(time_minutes=10, size_mb=-1)
    assert policies.backlog_quotas["destination_storage"].bytes_max == 1000
    assert policies.topic_dispatch_rate["standalone"].messages == 10
    assert policies.publish_rate["standalone"].messages == 5
    assert policies.auth_policies.namespace_auth == {"reader": ("consume",)}
    assert policies.bundles == even_bundles(4)
    assert json.loads(encode(policies)) == OF_PULSAR


def test_what_is_not_known_is_kept() -> None:
    document = {"bundles": None, "fromTheFuture": {"a": [1, None]}}
    assert to_json(from_json(LocalPolicies, document)) == {
        "migrated": False,
        "fromTheFuture": {"a": [1, None]},
    }


@pytest.mark.parametrize(
    ("kind", "data", "wrong"),
    [
        (NamespacePolicies, b"[]", "NamespacePolicies is not an object"),
        (NamespacePolicies, b'{"message_ttl_in_seconds": "5"}', "message_ttl_in_seconds"),
        (NamespacePolicies, b'{"deleted": 1}', "deleted"),
        (NamespacePolicies, b'{"bundles": {"boundaries": "x"}}', "bundles.boundaries"),
        (TenantInfo, b'{"adminRoles": [1]}', r"adminRoles\[0\]"),
        (PartitionedTopic, b'{"partitions": true}', "partitions"),
        (PartitionedTopic, b"\xff", "no JSON"),
        (TopicPolicies, b'{"retentionPolicies": 5}', "retentionPolicies"),
    ],
)
def test_what_is_wrong_is_named(kind: type, data: bytes, wrong: str) -> None:
    with pytest.raises(FormatError, match=wrong):
        decode(kind, data)


def test_an_old_quota_has_its_limit_under_the_old_name() -> None:
    assert from_json(BacklogQuota, {"limit": 7}).bytes_max == 7
    assert BacklogQuota().bytes_max == -1


@pytest.mark.parametrize(
    "rule",
    [
        AutoTopicCreation(allow=True, topic_type="round"),
        AutoTopicCreation(allow=True, topic_type="partitioned"),
        AutoTopicCreation(allow=True, topic_type="partitioned", default_num_partitions=0),
        AutoTopicCreation(allow=True, topic_type="non-partitioned", default_num_partitions=1),
        RetentionRule(time_minutes=0, size_mb=5),
        RetentionRule(time_minutes=-2, size_mb=-1),
    ],
)
def test_rules_that_contradict_themselves_are_refused(
    rule: AutoTopicCreation | RetentionRule,
) -> None:
    with pytest.raises(InputError):
        rule.check()


def test_bundles_are_cut_as_pulsar_cuts_them() -> None:
    assert even_bundles(3).boundaries == ("0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff")
    with pytest.raises(InputError):
        even_bundles(0)


def test_partitions_share_the_documents_of_their_topic() -> None:
    whole = TopicName.parse("persistent://t/n/a b")
    part = TopicName.parse("persistent://t/n/a b-partition-3")
    assert partitioned_topic_path(part) == partitioned_topic_path(whole)
    assert topic_policies_path(part) == "/admin/topic-policies/local/t/n/persistent/a+b"
