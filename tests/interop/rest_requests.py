"""REST requests, good and bad, in an order in which each finds what those before it left."""

from collections.abc import Iterator
from typing import NamedTuple


class Request(NamedTuple):
    """One request below `/admin/v2`."""

    method: str
    path: str
    body: str | None = None

    @property
    def name(self) -> str:
        """How tests and the list of differences call it."""
        return f"{self.method} {self.path}" + ("" if self.body is None else f" {self.body}")


_TENANT = '{"adminRoles":["a"],"allowedClusters":["standalone"]}'
_NO_JSON = "{ this is no JSON"
_N, _GONE = "namespaces/acme/n", "namespaces/acme/gone"
_X, _P = "persistent/acme/n/x", "persistent/acme/n/p"
_NOWHERE = "persistent/acme/gone/x"

TENANTS = (
    ("GET", "tenants/acme"),
    ("PUT", "tenants/acme", _TENANT),
    ("PUT", "tenants/acme", _TENANT),
    ("GET", "tenants/acme"),
    ("PUT", "tenants/other", _NO_JSON),
    ("PUT", "tenants/other", '{"allowedClusters":["nowhere"]}'),
    ("PUT", "tenants/other", '{"allowedClusters":[]}'),
    ("PUT", "tenants/bad$name", _TENANT),
    ("POST", "tenants/gone", _TENANT),
    ("POST", "tenants/acme", '{"adminRoles":["a","b"],"allowedClusters":["standalone"]}'),
    ("DELETE", "tenants/gone"),
)
NAMESPACES = (
    ("GET", _N),
    ("PUT", _N, '{"bundles":{"numBundles":4}}'),
    ("PUT", _N, '{"bundles":{"numBundles":4}}'),
    ("PUT", "namespaces/gone/n"),
    ("PUT", "namespaces/acme/bad$name"),
    ("PUT", "namespaces/acme/m", _NO_JSON),
    ("PUT", "namespaces/acme/m", '{"bundles":{"numBundles":-1}}'),
    ("GET", _N),
    ("GET", "namespaces/acme"),
    ("GET", "namespaces/gone"),
    ("GET", f"{_N}/topics"),
    ("GET", f"{_GONE}/topics"),
    ("GET", f"{_N}/bundles"),
    ("GET", f"{_GONE}/bundles"),
    ("DELETE", _GONE),
    ("DELETE", "tenants/acme"),
    ("POST", f"{_N}/permissions/r", '["produce","consume"]'),
    ("POST", f"{_N}/permissions/r", '["fly"]'),
    ("POST", f"{_GONE}/permissions/r", '["produce"]'),
    ("GET", f"{_N}/permissions"),
    ("DELETE", f"{_N}/permissions/nobody"),
)
POLICIES = (
    ("GET", f"{_N}/retention"),
    ("POST", f"{_N}/retention", '{"retentionTimeInMinutes":10,"retentionSizeInMB":5}'),
    ("GET", f"{_N}/retention"),
    ("POST", f"{_N}/retention", '{"retentionTimeInMinutes":0,"retentionSizeInMB":5}'),
    ("POST", f"{_N}/retention", '{"retentionTimeInMinutes":"soon"}'),
    ("POST", f"{_N}/retention", _NO_JSON),
    ("POST", f"{_GONE}/retention", '{"retentionTimeInMinutes":10,"retentionSizeInMB":5}'),
    ("GET", f"{_GONE}/retention"),
    ("DELETE", f"{_N}/retention"),
    ("POST", f"{_N}/messageTTL", "60"),
    ("POST", f"{_N}/messageTTL", "-1"),
    ("POST", f"{_N}/messageTTL", '"soon"'),
    ("GET", f"{_N}/messageTTL"),
    ("POST", f"{_N}/backlogQuota", '{"limitSize":10,"policy":"fly"}'),
    ("POST", f"{_N}/backlogQuota", '{"limitSize":1000000,"policy":"producer_exception"}'),
    ("GET", f"{_N}/backlogQuotaMap"),
    ("POST", f"{_N}/maxProducersPerTopic", "-1"),
    ("POST", f"{_N}/maxConsumersPerTopic", "-1"),
    ("POST", f"{_N}/maxSubscriptionsPerTopic", "-1"),
    ("POST", f"{_N}/maxUnackedMessagesPerConsumer", "-1"),
    ("POST", f"{_N}/dispatchRate", '{"dispatchThrottlingRateInMsg":"many"}'),
    ("POST", f"{_N}/subscriptionTypesEnabled", '["Flying"]'),
    ("PUT", f"{_N}/schemaCompatibilityStrategy", '"FLYING"'),
    (
        "POST",
        f"{_N}/persistence",
        '{"bookkeeperEnsemble":1,"bookkeeperWriteQuorum":2,"bookkeeperAckQuorum":2,'
        '"managedLedgerMaxMarkDeleteRate":1.0}',
    ),
    ("POST", f"{_N}/autoTopicCreation", '{"allowAutoTopicCreation":true,"topicType":"round"}'),
    ("POST", f"{_N}/inactiveTopicPolicies", '{"maxInactiveDurationSeconds":-5}'),
    ("POST", f"{_N}/inactiveTopicPolicies", '{"inactiveTopicDeleteMode":"fly"}'),
    ("GET", f"{_N}/inactiveTopicPolicies"),
    ("POST", f"{_N}/messageTTL", "99999999999"),
    ("POST", f"{_N}/retention", '{"retentionTimeInMinutes":99999999999,"retentionSizeInMB":5}'),
    ("POST", f"{_N}/retention", '{"retentionTimeInMinutes":5,"retentionSizeInMB":99999999999}'),
    ("POST", f"{_N}/maxProducersPerTopic", "99999999999"),
    ("POST", f"{_N}/publishRate", '{"publishThrottlingRateInMsg":99999999999}'),
    ("POST", f"{_N}/publishRate", '{"publishThrottlingRateInByte":99999999999}'),
    ("POST", f"{_N}/dispatchRate", '{"dispatchThrottlingRateInMsg":5,"ratePeriodInSecond":0}'),
    ("PUT", "namespaces/acme/b", '{"bundles":{"boundaries":["x"]}}'),
    ("GET", "namespaces/acme/b/bundles"),
    ("PUT", "namespaces/acme/c", '{"bundles":{"boundaries":["x"],"numBundles":2}}'),
    ("DELETE", "namespaces/acme/b"),
    ("DELETE", "namespaces/acme/c"),
)
TOPICS = (
    ("GET", f"{_X}/stats"),
    ("PUT", _X),
    ("PUT", _X),
    ("PUT", _NOWHERE),
    ("PUT", f"{_P}/partitions", "0"),
    ("PUT", f"{_P}/partitions", '"many"'),
    ("PUT", f"{_P}/partitions", "2"),
    ("PUT", f"{_P}/partitions", "2"),
    ("PUT", f"{_X}/partitions", "2"),
    ("POST", f"{_P}/partitions", "1"),
    ("POST", f"{_P}/partitions", "3"),
    ("POST", "persistent/acme/n/none/partitions", "3"),
    ("GET", f"{_P}/partitions"),
    ("GET", "persistent/acme/n/none/partitions"),
    ("GET", f"{_NOWHERE}/partitions"),
    ("GET", "persistent/acme/n"),
    ("GET", "persistent/acme/n/partitioned"),
    ("GET", "persistent/acme/gone"),
    ("GET", f"{_X}/stats"),
    ("GET", f"{_P}/stats"),
    ("GET", f"{_X}/partitioned-stats"),
    ("GET", f"{_P}/partitioned-stats"),
    ("GET", f"{_X}/internalStats"),
    ("GET", "persistent/acme/n/none/internalStats"),
    ("GET", f"{_X}/lastMessageId"),
    ("GET", "persistent/acme/n/none/lastMessageId"),
    ("GET", f"{_X}/subscriptions"),
    ("GET", "persistent/acme/n/none/subscriptions"),
    ("POST", f"{_X}/permissions/r", '["produce"]'),
    ("GET", f"{_X}/permissions"),
    ("DELETE", f"{_X}/permissions/r"),
    ("DELETE", f"{_X}/permissions/nobody"),
)
SUBSCRIPTIONS = (
    ("PUT", f"{_X}/subscription/s", '{"entryId":-1,"ledgerId":-1,"partitionIndex":-1}'),
    ("PUT", f"{_X}/subscription/s"),
    ("PUT", "persistent/acme/n/none/subscription/s"),
    ("PUT", f"{_X}/subscription/t", _NO_JSON),
    ("POST", f"{_X}/subscription/none/skip/1"),
    ("POST", f"{_X}/subscription/s/skip/1"),
    ("POST", f"{_X}/subscription/s/skip/many"),
    ("POST", f"{_X}/subscription/none/skip_all"),
    ("POST", f"{_X}/subscription/s/skip_all"),
    ("POST", f"{_X}/subscription/none/resetcursor/0"),
    ("POST", f"{_X}/subscription/s/resetcursor/soon"),
    ("POST", f"{_X}/subscription/none/expireMessages/10"),
    ("GET", f"{_X}/subscription/none/position/1"),
    ("GET", f"{_X}/subscription/s/position/1"),
    ("GET", f"{_X}/subscription/s/properties"),
    ("GET", f"{_X}/subscription/none/properties"),
    ("DELETE", f"{_X}/subscription/none"),
    ("DELETE", f"{_X}/subscription/s"),
)
SCHEMAS = (
    ("GET", "schemas/acme/n/x/schema"),
    ("GET", "schemas/acme/n/x/schema/7"),
    ("POST", "schemas/acme/n/x/schema", _NO_JSON),
    ("POST", "schemas/acme/n/x/schema", '{"type":"FLYING","schema":"","properties":{}}'),
    ("POST", "schemas/acme/n/x/schema", '{"type":"AVRO","schema":"no schema","properties":{}}'),
    ("POST", "schemas/acme/n/x/schema", '{"type":"STRING","schema":"","properties":{}}'),
    ("GET", "schemas/acme/n/x/schema"),
    ("GET", "schemas/acme/n/x/schema/0"),
    ("GET", "schemas/acme/n/x/schemas"),
    ("DELETE", "schemas/acme/n/x/schema"),
)
REST = (
    ("GET", "clusters"),
    ("GET", "clusters/standalone"),
    ("GET", "clusters/none"),
    ("DELETE", "clusters/none"),
    ("PUT", "clusters/bad", _NO_JSON),
    ("GET", "brokers/leaderBroker"),
    ("GET", "brokers/health"),
    ("GET", "brokers/none/of/this"),
    ("GET", "nothing"),
    ("POST", "clusters"),
    ("DELETE", "persistent/acme/n/none"),
    ("DELETE", f"{_P}"),
    ("DELETE", f"{_X}/partitions"),
    ("DELETE", _N),
    ("POST", f"{_X}/terminate"),
    ("POST", f"{_P}/terminate"),
    ("DELETE", _X),
    ("DELETE", _X),
    ("DELETE", f"{_P}/partitions"),
    ("DELETE", f"{_P}/partitions"),
    ("DELETE", _N),
    ("DELETE", "tenants/acme"),
)


def requests() -> Iterator[Request]:
    """All of them, in order."""
    for group in (TENANTS, NAMESPACES, POLICIES, TOPICS, SUBSCRIPTIONS, SCHEMAS, REST):
        yield from (Request(*row) for row in group)
