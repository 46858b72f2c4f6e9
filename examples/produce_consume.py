"""Publish and receive with the unmodified `pulsar-client` from the Python index.

    python examples/produce_consume.py --url pulsar://127.0.0.1:6650

Publishes one by one, in batches and with two compressions; receives everything in order on an
exclusive subscription, then shares it between two consumers. Every message is acknowledged.
"""

import argparse
import uuid

import pulsar

WAYS_TO_SEND = {
    "one by one": {"batching_enabled": False},
    "batches": {"batching_enabled": True},
    "lz4": {"batching_enabled": True, "compression_type": pulsar.CompressionType.LZ4},
    "zstd": {"batching_enabled": False, "compression_type": pulsar.CompressionType.ZSTD},
}
MESSAGES_EACH = 10
RECEIVE_TIMEOUT_MS = 10_000


def publish(client: pulsar.Client, topic: str) -> list[str]:
    """Send some messages in each way and return their texts."""
    texts: list[str] = []
    results: list[pulsar.Result] = []
    for way, options in WAYS_TO_SEND.items():
        producer = client.create_producer(topic, **options)
        for number in range(MESSAGES_EACH):
            texts.append(f"{way} {number}")
            producer.send_async(texts[-1].encode(), lambda result, _: results.append(result))
        producer.flush()
        producer.close()
        if results != [pulsar.Result.Ok] * len(texts):
            raise SystemExit(f"not every message was stored: {results}")
        print(f"published {MESSAGES_EACH} messages: {way}")
    return texts


def receive_in_order(consumer: pulsar.Consumer, count: int) -> list[str]:
    """Receive and acknowledge so many messages."""
    texts = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        texts.append(message.data().decode())
        consumer.acknowledge(message)
    return texts


def receive_shared(consumers: list[pulsar.Consumer], count: int) -> list[int]:
    """Receive so many messages with several consumers; return how many each one got."""
    shares = [0] * len(consumers)
    while sum(shares) < count:
        before = sum(shares)
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(RECEIVE_TIMEOUT_MS // 10)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            shares[number] += 1
        if sum(shares) == before:
            raise SystemExit(f"only {before} of {count} messages arrived")
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish and receive with the stock client.")
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--topic", help="default: a new one")
    options = parser.parse_args()
    topic = options.topic or f"example-{uuid.uuid4().hex[:8]}"
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))

    # A subscription gets what is published after it was made, so both are made first.
    ordered = client.subscribe(topic, "in-order", consumer_type=pulsar.ConsumerType.Exclusive)
    shared = [
        # A short queue, so that one consumer does not take everything ahead of the other.
        client.subscribe(
            topic, "shared", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=5
        )
        for _ in range(2)
    ]
    sent = publish(client, topic)
    if receive_in_order(ordered, len(sent)) != sent:
        raise SystemExit("the messages arrived in another order than they were sent")
    print(f"received {len(sent)} messages in order on an exclusive subscription")
    shares = receive_shared(shared, len(sent))
    print(f"received {sum(shares)} messages on a shared subscription: {shares}")
    client.close()


if __name__ == "__main__":
    main()
