"""The broker's figures under Pulsar's names, where Pulsar has one."""

from collections.abc import Iterable

from anabranch.broker import BrokerStatistics
from anabranch.telemetry.metrics import Metric, counter, gauge


def broker_metrics(now: BrokerStatistics, *, cluster: str) -> Iterable[Metric]:
    """Offer what the broker counts; see `MetricSource`."""
    yield gauge(
        "pulsar_active_connections", "Client connections.", now.connections, cluster=cluster
    )
    yield gauge("pulsar_topics_count", "Topics open here.", now.topics, cluster=cluster)
    yield gauge("pulsar_producers_count", "Producers connected.", now.producers, cluster=cluster)
    yield gauge("pulsar_consumers_count", "Consumers connected.", now.consumers, cluster=cluster)
    yield counter("pulsar_in_messages_total", "Messages in.", now.messages_in, cluster=cluster)
    yield counter("pulsar_out_messages_total", "Messages out.", now.messages_out, cluster=cluster)
