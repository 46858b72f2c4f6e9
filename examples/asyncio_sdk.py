"""Every call of the asyncio SDK, against a server that speaks Pulsar's protocol.

    python examples/asyncio_sdk.py --url pulsar://127.0.0.1:6650 --web-url http://127.0.0.1:8080

Compression other than zlib takes `pip install 'anabranch[compression]'`.
"""

import argparse
import asyncio
import json
import re
import uuid

from anabranch.client import EARLIEST, Batching, Client, DeadLetters, MessageId, Schema
from anabranch.client.admin import AdminClient

MESSAGES = 100


async def publish(client: Client, topic: str) -> list[MessageId]:
    """Send one by one, pipelined, packed; return where the messages are."""
    producer = await client.producer(topic, name="example", batching=None)
    first = await producer.send(b"0", key="even", properties={"lang": "en"}, event_time_ms=1)
    await producer.close()

    producer = await client.producer(
        topic, batching=Batching(messages_max=20, delay_s=0.005), compression="zlib"
    )
    answers = [
        await producer.send_soon(b"%d" % number, key="odd" if number % 2 else "even")
        for number in range(1, MESSAGES)
    ]
    await producer.flush()
    await producer.close()
    return [first, *[answer.result() for answer in answers]]


async def receive(client: Client, topic: str) -> None:
    """Receive in order, acknowledge up to a message, and have the rest again."""
    consumer = await client.consumer(topic, "ordered", initial_position="earliest")
    message = await consumer.receive()
    print(f"received {message.value!r} with key {message.key} at {message.id}")
    await consumer.acknowledge(message, wait=True)
    seen = [message]
    while len(seen) < MESSAGES:
        seen += await consumer.receive_many(50)
    await consumer.acknowledge(seen[49], cumulative=True)
    consumer.redeliver()
    async for message in consumer:
        if message.value == b"99":
            break
    await consumer.seek(seen[20].id)
    assert (await consumer.receive()).value == b"20"
    last, _ = await consumer.last_message_id()
    assert last.position == seen[-1].id.position
    await consumer.unsubscribe()


async def share(client: Client, topic: str) -> None:
    """Divide the work, and refuse a message for now."""
    consumer = await client.consumer(
        topic, "shared", subscription_type="shared", initial_position="earliest"
    )
    refused = await consumer.receive()
    consumer.negative_acknowledge(refused, delay_s=0.1)
    count = 0
    async with asyncio.timeout(10):
        while count < MESSAGES:
            message = await consumer.receive()
            if message.id != refused.id or message.redelivery_count:
                count += 1
                await consumer.acknowledge(message)
    await consumer.close()
    print(f"shared {count} messages, one of them after it was refused")


async def read(client: Client, topic: str, ids: list[MessageId]) -> int:
    """Read without a subscription: from a place to the end, and again from the beginning."""
    reader = await client.reader(topic, start=ids[9])
    assert (await reader.read_next()).value == b"10"
    await reader.seek(EARLIEST)
    count = 0
    while await reader.has_message_available():
        await reader.read_next()
        count += 1
    await reader.seek(ids[97])
    async for message in reader:
        if message.id == ids[-1]:
            break
    await reader.close()
    return count


async def give_up(client: Client, topic: str) -> None:
    """Have a message again later, and put one that stays difficult aside."""
    consumer = await client.consumer(
        topic, "careful", subscription_type="shared", dead_letters=DeadLetters(redeliveries_max=1)
    )
    aside = await client.consumer(f"{topic}-careful-DLQ", "aside")
    producer = await client.producer(topic)
    await producer.send(b"difficult", deliver_after_s=0.1)
    for _ in range(2):
        await consumer.reconsume_later(await consumer.receive(), delay_s=0.1)
    difficult = await aside.receive()
    print(f"put aside: {difficult.value!r} of {difficult.properties['REAL_TOPIC']}")
    await producer.close()
    await consumer.close()
    await aside.close()


async def use_more_topics(client: Client, topic: str) -> None:
    """Receive from several topics, and from those that match a pattern."""
    names = [f"{topic}-north", f"{topic}-south"]
    for name in names:
        await (await client.producer(name, access_mode="exclusive")).close()
    everywhere = await client.consumer(re.compile(f"public/default/{topic}-(north|south)"), "all")
    both = await client.consumer(names, "both")
    for name in names:
        producer = await client.producer(name)
        await producer.send(b"hello")
        await producer.close()
    for consumer in (everywhere, both):
        assert {(await consumer.receive()).value for _ in names} == {b"hello"}
        await consumer.unsubscribe()


async def keep_a_schema(client: Client, topic: str) -> None:
    """Tell the broker what payloads are, and ask what they were."""
    fields = [{"name": "lang", "type": "string"}]
    text = json.dumps({"type": "record", "name": "Phrase", "fields": fields}).encode()
    producer = await client.producer(f"{topic}-typed", schema=Schema("Json", text))
    await producer.send(b'{"lang": "en"}')
    await producer.close()
    assert json.loads((await client.schema(f"{topic}-typed")).data)["name"] == "Phrase"


async def divide(client: Client, admin: AdminClient, topic: str) -> None:
    """Send to a topic with partitions: a key decides which, others go around."""
    await admin.topics.create_partitioned(f"{topic}-many", 3)
    assert await client.partitions(f"{topic}-many") == 3
    producer = await client.producer(f"{topic}-many", batching=None)
    ids = [await producer.send(b"%d" % number) for number in range(6)]
    large = await client.producer(f"{topic}-many", batching=None, chunking=True)
    assert (await large.send(bytes(6_000_000), key="a")).first_chunk_entry_id >= 0
    print(f"sent {len(ids)} messages to {len({one.partition for one in ids})} partitions")


async def main(url: str, web_url: str, topic: str) -> None:
    """Do all of it."""
    # Says at once if nobody answers there; `Client(url)` finds out when it is used.
    await (await Client.connect(url)).close()
    async with Client(url) as client, AdminClient(web_url) as admin:
        # Messages stay as long as some subscription has not seen them.
        keeper = await client.consumer(topic, "keeper")
        ids = await publish(client, topic)
        await receive(client, topic)
        await share(client, topic)
        print(f"read {await read(client, topic, ids)} messages in order")
        await keeper.close()
        await give_up(client, topic)
        await use_more_topics(client, topic)
        await keep_a_schema(client, topic)
        await divide(client, admin, topic)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Every call of the asyncio SDK.")
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--web-url", default="http://127.0.0.1:8080")
    parser.add_argument("--topic", help="default: a new one")
    options = parser.parse_args()
    topic = options.topic or f"sdk-{uuid.uuid4().hex[:8]}"
    asyncio.run(main(options.url, options.web_url, topic))
