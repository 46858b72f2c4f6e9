"""Python's and Java's clients and pulsar-perf, unmodified, on three brokers with bookies.

On each store. They see what they see on one server, where the same is tested.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest
import test_java_admin_client
import test_java_letters_and_types
import test_java_more_features
import test_java_readers_and_seeks
import test_pulsar_perf
import test_readers_and_seeks
import test_stock_client
import test_stock_producers
import test_stock_subscriptions
import test_topics_with_stock_client

from anabranch.testing.servers import bookkeeper, oxia, pulsar_client, zookeeper
from anabranch.testing.servers.java_programs import JARS, TOOLS, marked_lines, named_lines, said_by
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
CLUSTER = "standalone"
"""What the program of the admin client calls the cluster."""
SEEN_BY_THE_STOCK_CLIENT: list[Callable[[Any, str], None]] = [
    partial(test_stock_client.test_publish_and_consume, compression="zstd", batched=True),
    test_stock_client.test_a_shared_subscription_divides_the_messages,
    test_stock_client.test_a_negative_ack_brings_the_message_again,
    test_stock_client.test_a_schema_is_kept_and_another_is_refused,
    test_stock_client.test_a_message_in_chunks_of_the_largest_size,
    test_stock_producers.test_an_exclusive_producer_is_alone,
    test_stock_producers.test_a_waiting_producer_gets_its_turn,
    test_stock_producers.test_names_are_unique_and_sequence_ids_the_clients,
    test_stock_subscriptions.test_failover_goes_on_in_order_with_what_is_not_acknowledged,
    partial(test_stock_subscriptions.test_a_key_belongs_to_one_consumer, batched=True),
    test_stock_subscriptions.test_the_order_of_a_key_outlives_consumers,
    test_stock_subscriptions.test_sticky_ranges,
    test_stock_subscriptions.test_what_fails_too_often_becomes_a_dead_letter,
    test_stock_subscriptions.test_messages_of_a_batch_are_acknowledged_one_by_one,
    test_stock_subscriptions.test_a_delayed_message_comes_at_its_time,
    test_readers_and_seeks.test_readers_see_everything_and_take_nothing_from_each_other,
    test_readers_and_seeks.test_a_seek_into_a_batch_and_back_from_its_end,
    test_topics_with_stock_client.test_a_topic_that_stores_nothing,
]


@pytest.fixture(scope="module", params=[zookeeper, oxia], ids=["zookeeper", "oxia"])
def brokers(request: pytest.FixtureRequest) -> Iterator[OurBrokers]:
    with request.param() as metadata:
        init_cluster(metadata.url, cluster=CLUSTER)
        with bookkeeper(metadata.url, 3), our_brokers(metadata.url, cluster=CLUSTER) as running:
            yield running


def name_of(story: Callable[..., None]) -> str:
    plain = story.func if isinstance(story, partial) else story
    return plain.__name__.removeprefix("test_")


@pytest.fixture(scope="module")
def client(brokers: OurBrokers) -> Iterator[Any]:
    with pulsar_client(brokers.service_url, operation_timeout_seconds=30) as connected:
        yield connected


@pytest.mark.goal("core.B14", part="processes")
@pytest.mark.parametrize("story", SEEN_BY_THE_STOCK_CLIENT, ids=name_of)
def test_the_stock_client(story: Callable[[Any, str], None], client: Any) -> None:
    story(client, f"{name_of(story)}-{time.monotonic_ns()}")


@pytest.mark.goal("core.B14", part="processes")
def test_the_java_client_of_5_0_0_reads_and_seeks(brokers: OurBrokers) -> None:
    walk = test_java_readers_and_seeks
    said = said_by(walk.PROGRAM, brokers.service_url, f"java-{time.monotonic_ns()}")
    assert named_lines(said, walk.SEEN) == walk.SEEN


@pytest.mark.goal("core.B14", part="processes")
@pytest.mark.parametrize("libraries", [JARS, TOOLS])
def test_the_java_client_sees_the_same_features(brokers: OurBrokers, libraries: str) -> None:
    """Its topics deduplicate by the policy of their namespace, whichever broker has them."""
    walk = test_java_more_features
    deduplicate(brokers, "true")
    try:
        name, web_url = f"java-{time.monotonic_ns()}", f"http://127.0.0.1:{brokers.web_ports[0]}"
        said = said_by(walk.PROGRAM, brokers.service_url, name, web_url, libraries=libraries)
    finally:
        deduplicate(brokers, "false")
    assert named_lines(said, walk.SEEN) == walk.SEEN


def deduplicate(brokers: OurBrokers, wanted: str) -> None:
    connection = HTTPConnection("127.0.0.1", brokers.web_ports[0], timeout=30)
    try:
        path = "/admin/v2/namespaces/public/default/deduplication"
        connection.request("POST", path, wanted, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 204
    finally:
        connection.close()


@pytest.mark.goal("core.B14", part="processes")
def test_the_java_client_of_4_0_8(brokers: OurBrokers) -> None:
    walk = test_java_letters_and_types
    name = f"java-{time.monotonic_ns()}"
    said = said_by(walk.PROGRAM, brokers.service_url, name, libraries=TOOLS)
    assert named_lines(said, walk.SEEN) == walk.SEEN


@pytest.mark.goal("core.B16", part="java admin client")
def test_the_java_admin_client_of_5_0_0(brokers: OurBrokers) -> None:
    """The broker that is asked has not all of the topics, and sends on to those who have."""
    walk = test_java_admin_client
    web_url = f"http://127.0.0.1:{brokers.web_ports[0]}"
    said = marked_lines(said_by(walk.PROGRAM, web_url, "acme"))
    # Any of them may lead; each says who does.
    assert [line.replace("leader false", "leader true") for line in said] == walk.SEEN


@pytest.mark.goal("core.B14", part="processes")
def test_pulsar_perf_of_4_0_8(brokers: OurBrokers) -> None:
    test_pulsar_perf.send_and_receive(brokers.service_url)
