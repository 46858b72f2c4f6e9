"""Where the documents lie. Names that come here were checked by `ids`."""

from anabranch.ids import TopicName, encode_segment

CLUSTERS = "/admin/clusters"
TENANTS = "/admin/policies"
LOCAL_POLICIES = "/admin/local-policies"
PARTITIONED_TOPICS = "/admin/partitioned-topics"
TOPIC_POLICIES = "/admin/topic-policies/local"


def cluster_path(cluster: str) -> str:
    """A cluster's document."""
    return f"{CLUSTERS}/{cluster}"


def tenant_path(tenant: str) -> str:
    """A tenant's document; those of its namespaces lie below it."""
    return f"{TENANTS}/{tenant}"


def namespace_path(namespace: str) -> str:
    """The policies of `TENANT/NAMESPACE`."""
    return f"{TENANTS}/{namespace}"


def local_policies_path(namespace: str) -> str:
    """What only the own cluster needs of `TENANT/NAMESPACE`."""
    return f"{LOCAL_POLICIES}/{namespace}"


def partitioned_topics_path(namespace: str, domain: str) -> str:
    """The parent of all partitioned topics of a namespace."""
    return f"{PARTITIONED_TOPICS}/{namespace}/{domain}"


def partitioned_topic_path(topic: TopicName) -> str:
    """The document of a partitioned topic; also for the name of one of its partitions."""
    parent = partitioned_topics_path(topic.namespace_name, topic.domain)
    return f"{parent}/{encode_segment(topic.partitioned_local)}"


def topic_policies_path(topic: TopicName) -> str:
    """The policies of a topic, shared by all its partitions."""
    name = encode_segment(topic.partitioned_local)
    return f"{TOPIC_POLICIES}/{topic.namespace_name}/{topic.domain}/{name}"
