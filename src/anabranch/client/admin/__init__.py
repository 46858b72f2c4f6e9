"""The admin client: Pulsar's admin REST v2 as typed calls."""

from anabranch.client.admin.client import AdminClient
from anabranch.client.admin.documents import (
    ConsumerStats,
    Peeked,
    PublisherStats,
    SchemaVersion,
    SubscriptionStats,
    TopicStats,
)
from anabranch.client.admin.namespace_policies import POLICIES, Policy
from anabranch.client.admin.refusals import (
    AdminConflict,
    AdminDenied,
    AdminNotFound,
    AdminRefused,
)
from anabranch.client.admin.topic_policies import TOPIC_POLICIES

__all__ = [
    "POLICIES",
    "TOPIC_POLICIES",
    "AdminClient",
    "AdminConflict",
    "AdminDenied",
    "AdminNotFound",
    "AdminRefused",
    "ConsumerStats",
    "Peeked",
    "Policy",
    "PublisherStats",
    "SchemaVersion",
    "SubscriptionStats",
    "TopicStats",
]
