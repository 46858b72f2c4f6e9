"""Figures of topics and subscriptions, under Pulsar's names and labels.

One row a figure. Where there are too many topics for that, those of a namespace are added up.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from anabranch.broker.backlogs import backlog_bytes
from anabranch.broker.subscription import Subscription
from anabranch.broker.topic import Topic
from anabranch.managed_ledger.storage_figures import StorageInterval
from anabranch.telemetry.metrics import STILL_COUNTING, Metric, Sample

T = TypeVar("T")
_SIZES: Final = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")
"""How Pulsar calls the bounds of sizes."""


class _Figure(NamedTuple, Generic[T]):
    name: str
    help: str
    of: Callable[[T], float]
    kind: Literal["gauge", "counter"] = "gauge"


def _going_out(topic: Topic, place: int) -> float:
    return sum(each.traffic.per_second[place] for each in topic.subscriptions.values())


def _backlog(topic: Topic) -> int:
    return sum(each.cursor.backlog() for each in topic.subscriptions.values())


def _backlog_bytes(topic: Topic) -> int:
    behind = [backlog_bytes(topic, s.cursor.mark_delete) for s in topic.subscriptions.values()]
    return max(behind, default=0)


def _interval(topic: Topic) -> StorageInterval:
    return topic.ledger.figures.shown


def _read_a_second(topic: Topic) -> float:
    return _interval(topic).reads_per_s


def _at(of: Callable[[Topic], Sequence[int]], place: int, topic: Topic) -> int:
    return of(topic)[place]


def _buckets(
    name: str, help_text: str, suffixes: Sequence[str], of: Callable[[Topic], Sequence[int]]
) -> Iterator[_Figure[Topic]]:
    """One figure a bucket, as Pulsar has them: each counts what the one before does not."""
    for place, suffix in enumerate(suffixes):
        yield _Figure(f"{name}_{suffix}", help_text, partial(_at, of, place))
    yield _Figure(f"{name}_count", help_text, lambda t: sum(of(t)))


def _unacknowledged(subscription: Subscription) -> int:
    return sum(consumer.unacked_messages for consumer in subscription.consumers)


_OF_TOPICS: Final[tuple[_Figure[Topic], ...]] = (
    _Figure("pulsar_subscriptions_count", "Subscriptions.", lambda t: len(t.subscriptions)),
    _Figure("pulsar_producers_count", "Producers connected.", lambda t: len(t.producers)),
    _Figure(
        "pulsar_consumers_count",
        "Consumers connected.",
        lambda t: sum(len(each.consumers) for each in t.subscriptions.values()),
    ),
    _Figure("pulsar_rate_in", "Messages in a second.", lambda t: t.traffic.per_second[0]),
    _Figure("pulsar_rate_out", "Messages out a second.", lambda t: _going_out(t, 0)),
    _Figure("pulsar_throughput_in", "Bytes in a second.", lambda t: t.traffic.per_second[1]),
    _Figure("pulsar_throughput_out", "Bytes out a second.", lambda t: _going_out(t, 1)),
    _Figure("pulsar_in_messages_total", "Messages in.", lambda t: t.traffic.messages, "counter"),
    _Figure("pulsar_in_bytes_total", "Bytes in.", lambda t: t.traffic.bytes, "counter"),
    _Figure(
        "pulsar_out_messages_total",
        "Messages out.",
        lambda t: sum(each.traffic.messages for each in t.subscriptions.values()),
        "counter",
    ),
    _Figure(
        "pulsar_out_bytes_total",
        "Bytes out.",
        lambda t: sum(each.traffic.bytes for each in t.subscriptions.values()),
        "counter",
    ),
    _Figure("pulsar_msg_backlog", "Entries not acknowledged.", _backlog),
    _Figure("pulsar_storage_size", "Bytes stored.", lambda t: t.ledger.size_bytes),
    _Figure(
        "pulsar_storage_backlog_size", "Bytes the slowest has not acknowledged.", _backlog_bytes
    ),
    _Figure("pulsar_storage_logical_size", "Bytes, stored once.", lambda t: t.ledger.size_bytes),
    _Figure(
        "pulsar_storage_write_rate", "Entries stored a second.", lambda t: _interval(t).writes_per_s
    ),
    # Pulsar counts no reads from the cache under the first of these names either.
    _Figure(
        "pulsar_storage_read_rate", "Entries read a second, not from the cache.", _read_a_second
    ),
    _Figure(
        "pulsar_storage_read_cache_misses_rate",
        "Entries read a second that were not in the cache.",
        _read_a_second,
    ),
    *_buckets(
        "pulsar_storage_write_latency",
        "Entries of the last minute by milliseconds until they were stored.",
        ("le_0_5", *(f"le_{ms}" for ms in (1, 5, 10, 20, 50, 100, 200, 1000)), "overflow"),
        lambda t: _interval(t).latencies,
    ),
    _Figure(
        "pulsar_storage_write_latency_sum",
        "Microseconds until entries of the last minute were stored.",
        lambda t: int(_interval(t).latency_sum_s * 1_000_000),
    ),
    *_buckets(
        "pulsar_entry_size",
        "Entries of the last minute by bytes.",
        (*(f"le_{size}" for size in _SIZES), "le_overflow"),
        lambda t: _interval(t).sizes,
    ),
    _Figure(
        "pulsar_entry_size_sum",
        "Bytes of the entries of the last minute.",
        lambda t: _interval(t).size_sum_bytes,
    ),
    _Figure("pulsar_storage_offloaded_size", "Bytes stored elsewhere: none.", lambda _: 0),
    _Figure(
        "pulsar_storage_backlog_quota_limit",
        "Bytes that may be unacknowledged; -1 for any number.",
        lambda t: t.policies.storage_quota.bytes_max,
    ),
    _Figure(
        "pulsar_storage_backlog_quota_limit_time",
        "Seconds that a message may be unacknowledged; -1 for ever.",
        lambda t: t.policies.age_quota.limit_time if t.policies.age_quota.limit_time > 0 else -1,
    ),
)
_OF_SUBSCRIPTIONS: Final[tuple[_Figure[Subscription], ...]] = (
    _Figure(
        "pulsar_subscription_back_log", "Entries not acknowledged.", lambda s: s.cursor.backlog()
    ),
    _Figure(
        "pulsar_subscription_back_log_no_delayed",
        "Entries not acknowledged, without those to be sent later.",
        lambda s: max(0, s.cursor.backlog() - s.delayed),
    ),
    _Figure("pulsar_subscription_delayed", "Entries to be sent later.", lambda s: s.delayed),
    _Figure("pulsar_subscription_unacked_messages", "Sent, not acknowledged.", _unacknowledged),
    _Figure(
        "pulsar_subscription_blocked_on_unacked_messages",
        "1 while nothing is sent because too much is not acknowledged.",
        lambda s: s.is_blocked,
    ),
    _Figure(
        "pulsar_subscription_consumers_count", "Consumers connected.", lambda s: len(s.consumers)
    ),
    _Figure(
        "pulsar_subscription_msg_rate_out",
        "Messages out a second.",
        lambda s: s.traffic.per_second[0],
    ),
    _Figure(
        "pulsar_subscription_msg_throughput_out",
        "Bytes out a second.",
        lambda s: s.traffic.per_second[1],
    ),
    _Figure(
        "pulsar_subscription_msg_rate_redeliver",
        "Entries sent again a second.",
        lambda s: s.traffic.per_second[2],
    ),
    _Figure(
        "pulsar_subscription_msg_ack_rate",
        "Acknowledgements a second.",
        lambda s: s.traffic.per_second[3],
    ),
    _Figure(
        "pulsar_subscription_total_msg_expired",
        "Entries passed over because they were too old.",
        lambda s: s.expired.entries,
        "counter",
    ),
    *(
        _Figure(f"pulsar_subscription_last_{what}_timestamp", f"Milliseconds: {words}.", when)
        for what, words, when in (
            ("acked", "the last acknowledgement", lambda s: s.last_ack_ms),
            ("consumed", "the last message that was sent", lambda s: s.traffic.last_ms),
            ("consumed_flow", "the last permits", lambda s: s.last_flow_ms),
            ("expire", "when messages expired last", lambda s: s.expired.last_ms),
        )
    ),
)


def topic_metrics(topics: Sequence[Topic], *, cluster: str, each_topic: bool) -> Iterator[Metric]:
    """Offer the figures; with `each_topic` those of every topic and subscription by itself."""
    here = _Figure[Topic]("pulsar_topics_count", "Topics open here.", lambda _: 1)
    yield Metric(here.name, here.kind, here.help, _summed(here, topics, cluster))
    for figure in _OF_TOPICS:
        samples = (
            _of_each(figure, topics, cluster) if each_topic else _summed(figure, topics, cluster)
        )
        yield Metric(figure.name, figure.kind, figure.help, samples)
    if each_topic:
        for of_subscription in _OF_SUBSCRIPTIONS:
            yield Metric(
                of_subscription.name,
                of_subscription.kind,
                of_subscription.help,
                _of_subscriptions(of_subscription, topics, cluster),
            )


def _of_each(figure: _Figure[Topic], topics: Iterable[Topic], cluster: str) -> Iterator[Sample]:
    for topic in topics:
        yield Sample(figure.of(topic), _labels(topic, cluster))


def _summed(figure: _Figure[Topic], topics: Iterable[Topic], cluster: str) -> Iterator[Sample]:
    sums: dict[str, float] = defaultdict(float)
    for topic in topics:
        sums[topic.name.namespace_name] += figure.of(topic)
        yield STILL_COUNTING
    for namespace, value in sums.items():
        yield Sample(value, {"cluster": cluster, "namespace": namespace})


def _of_subscriptions(
    figure: _Figure[Subscription], topics: Iterable[Topic], cluster: str
) -> Iterator[Sample]:
    for topic in topics:
        for name, subscription in list(topic.subscriptions.items()):
            labels = {**_labels(topic, cluster), "subscription": name}
            yield Sample(figure.of(subscription), labels)


def _labels(topic: Topic, cluster: str) -> dict[str, str]:
    return {"cluster": cluster, "namespace": topic.name.namespace_name, "topic": str(topic.name)}
