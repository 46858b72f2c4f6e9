"""The broker's figures under Pulsar's names, where Pulsar has one."""

from collections.abc import Iterable

from anabranch.broker import Broker
from anabranch.broker.publish_latency import BOUNDS_S
from anabranch.server.topic_metrics import topic_metrics
from anabranch.telemetry.metrics import Metric, counter, gauge, histogram


def broker_metrics(broker: Broker, *, cluster: str, each_topic: bool) -> Iterable[Metric]:
    """Offer what the broker counts; see `MetricSource` and `topic_metrics`."""
    now = broker.statistics()
    for name, words, value in (
        ("pulsar_active_connections", "Client connections.", now.connections),
        ("pulsar_broker_topics_count", "Topics open here.", now.topics),
        ("pulsar_broker_producers_count", "Producers connected.", now.producers),
        ("pulsar_broker_consumers_count", "Consumers connected.", now.consumers),
    ):
        yield gauge(name, words, value, cluster=cluster)
    version = broker.server_version
    yield gauge("pulsar_version_info", "What runs here.", 1, cluster=cluster, version=version)
    for name, words, value in (
        ("anabranch_in_messages_total", "Messages in, of all topics.", now.messages_in),
        ("anabranch_out_messages_total", "Messages out, of all topics.", now.messages_out),
        (
            "anabranch_unexpected_errors_total",
            "Requests that met a bug; the log has each as unexpected_error.",
            now.mishaps,
        ),
    ):
        yield counter(name, words, value, cluster=cluster)
    yield histogram(
        "anabranch_publish_latency_seconds",
        "From a message's arrival until it is stored, by samples.",
        BOUNDS_S,
        broker.publish_latency.counts,
        broker.publish_latency.sum_s,
    )
    yield gauge(
        "anabranch_ledgers_pending_bytes",
        "Bytes that wait for the disk or for bookies.",
        broker.pressure.pending_bytes,
    )
    yield from topic_metrics(broker.topics.all(), cluster=cluster, each_topic=each_topic)
