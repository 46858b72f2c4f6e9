"""The table of endpoints: everything the web interface answers, each row with who may."""

from typing import Final

from anabranch.admin.backlog_analysis import BACKLOG_ENDPOINTS
from anabranch.admin.brokers import BROKER_ENDPOINTS
from anabranch.admin.bundles import BUNDLE_ENDPOINTS
from anabranch.admin.clusters import CLUSTER_ENDPOINTS
from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.health import HEALTH_ENDPOINTS
from anabranch.admin.internal_statistics import INTERNAL_STATISTICS_ENDPOINTS
from anabranch.admin.metadata_migration import METADATA_MIGRATION_ENDPOINTS
from anabranch.admin.namespace_policies import POLICY_ENDPOINTS
from anabranch.admin.namespaces import NAMESPACE_ENDPOINTS
from anabranch.admin.openapi import describe
from anabranch.admin.replication import REPLICATION_ENDPOINTS
from anabranch.admin.schemas import SCHEMA_ENDPOINTS
from anabranch.admin.statistics import STATISTICS_ENDPOINTS
from anabranch.admin.subscriptions import SUBSCRIPTION_ENDPOINTS
from anabranch.admin.tenants import TENANT_ENDPOINTS
from anabranch.admin.topic_policies import TOPIC_POLICY_ENDPOINTS
from anabranch.admin.topics import TOPIC_ENDPOINTS
from anabranch.admin.unserved import UNSERVED_ENDPOINTS
from anabranch.admin.unserved_by_clusters import UNSERVED_CLUSTER_ENDPOINTS
from anabranch.security import Right


async def openapi(_: Call) -> object:
    """This very table, as OpenAPI."""
    return describe(ENDPOINTS)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *HEALTH_ENDPOINTS,
    *BROKER_ENDPOINTS,
    *CLUSTER_ENDPOINTS,
    *TENANT_ENDPOINTS,
    *NAMESPACE_ENDPOINTS,
    *POLICY_ENDPOINTS,
    *REPLICATION_ENDPOINTS,
    *BUNDLE_ENDPOINTS,
    *TOPIC_ENDPOINTS,
    *TOPIC_POLICY_ENDPOINTS,
    *SUBSCRIPTION_ENDPOINTS,
    *BACKLOG_ENDPOINTS,
    *STATISTICS_ENDPOINTS,
    *INTERNAL_STATISTICS_ENDPOINTS,
    *SCHEMA_ENDPOINTS,
    *METADATA_MIGRATION_ENDPOINTS,
    *UNSERVED_ENDPOINTS,
    *UNSERVED_CLUSTER_ENDPOINTS,
    Endpoint("GET", "/openapi.json", Right.KNOWN, openapi, "This table as OpenAPI"),
)
