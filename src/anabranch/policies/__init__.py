"""Policies of clusters, tenants, namespaces and topics: Pulsar's own JSON documents, typed.

Pure: what a document says, where it lies, and which level wins. Reading and watching the store is
the broker's. Fields that are not known here are kept as they are when a document is written again.
"""

from anabranch.policies.clusters import ClusterData, TenantInfo
from anabranch.policies.json_documents import (
    JsonDocument,
    decode,
    encode,
    from_json,
    to_json,
)
from anabranch.policies.namespaces import (
    LocalPolicies,
    NamespacePolicies,
    even_bundles,
    given_bundles,
)
from anabranch.policies.rules import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    Bundles,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    RetentionRule,
    SubscribeRate,
)
from anabranch.policies.topics import PartitionedTopic, TopicPolicies

__all__ = [
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BacklogQuota",
    "Bundles",
    "ClusterData",
    "DelayedDelivery",
    "DispatchRate",
    "InactiveTopics",
    "JsonDocument",
    "LocalPolicies",
    "NamespacePolicies",
    "PartitionedTopic",
    "Persistence",
    "PublishRate",
    "RetentionRule",
    "SubscribeRate",
    "TenantInfo",
    "TopicPolicies",
    "decode",
    "encode",
    "even_bundles",
    "from_json",
    "given_bundles",
    "to_json",
]
