"""Dead and retry letters, delays, access modes, and ranges of keys."""

import asyncio
from typing import Any

import pytest
from served_client import TOPIC, backlog_of, served

from anabranch.client import BrokerRefused, Client, DeadLetters
from anabranch.client.packing import Packer
from anabranch.errors import AlreadyClosed, ConfigError, InputError, OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import MessageMetadata

SHARED: Any = {"subscription_type": "shared", "initial_position": "earliest"}


@pytest.mark.goal("core.B23", part="letters", broken_by="sdk_never_gives_up")
async def test_a_message_that_is_always_refused_is_buried() -> None:
    async with served() as (server, client):
        letters = DeadLetters(2, initial_subscription="found")
        consumer = await client.consumer(
            TOPIC, "s", **SHARED, dead_letters=letters, negative_ack_delay_s=0.01
        )
        producer = await client.producer(TOPIC, batching=None)
        place = await producer.send(b"bad", key="k", properties={"a": "b"}, event_time_ms=7)
        good = await producer.send(b"good")
        seen = []
        async with asyncio.timeout(10):
            while len(seen) < 4:
                message = await consumer.receive()
                seen.append((message.value, message.redelivery_count))
                if message.id == good:
                    await consumer.acknowledge(message)
                else:
                    consumer.negative_acknowledge(message)
            dead = await client.consumer(f"{TOPIC}-s-DLQ", "found")
            buried = await dead.receive()
        assert sorted(seen) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        assert (buried.value, buried.key, buried.event_time_ms) == (b"bad", "k", 7)
        assert buried.properties == {
            "a": "b",
            "REAL_TOPIC": TOPIC,
            "ORIGIN_MESSAGE_ID": f"{place.ledger_id}:{place.entry_id}:-1",
        }
        async with asyncio.timeout(10):
            while await backlog_of(server, TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_message_that_cannot_be_read_is_buried_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def encrypted(self: Packer, metadata: MessageMetadata, payload: bytes) -> bytes:
        metadata.encryption_keys.add(key="unknown", value=b"")
        return payload

    async with served() as (server, client):
        letters = DeadLetters(1, initial_subscription="found")
        consumer = await client.consumer(
            TOPIC, "s", **SHARED, dead_letters=letters, negative_ack_delay_s=0.01
        )
        producer = await client.producer(TOPIC, batching=None)
        with monkeypatch.context() as patched:
            patched.setattr(Packer, "_packed", encrypted)
            await producer.send(b"cipher", key="k")
        async with asyncio.timeout(10):
            for _ in range(2):
                message = await consumer.receive()
                with pytest.raises(ConfigError, match="encrypted"):
                    assert message.value
                with pytest.raises(ConfigError, match="encrypted"):
                    await consumer.reconsume_later(message, delay_s=0.1)
                consumer.negative_acknowledge(message)
            dead = await client.consumer(f"{TOPIC}-s-DLQ", "found")
            buried = await dead.receive()
            assert (buried.value, buried.key) == (b"cipher", "k")
            assert "encrypted" in buried.properties["UNREADABLE"]
            while await backlog_of(server, TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_what_cannot_be_buried_comes_again_after_a_while() -> None:
    async with served() as (server, client):
        letters = DeadLetters(1, topic="persistent://public/nowhere/dead")
        consumer = await client.consumer(
            TOPIC, "s", **SHARED, dead_letters=letters, negative_ack_delay_s=0.01
        )
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"bad")
        for _ in range(2):
            consumer.negative_acknowledge(await consumer.receive())
        await asyncio.sleep(0.7)
        (topic,) = [each for each in server._broker.topics.all() if str(each.name) == TOPIC]
        assert topic.subscriptions["s"].traffic.again < 4
        assert await backlog_of(server, TOPIC) == 1


async def test_a_burying_producer_that_has_ended_is_opened_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.client.again.BURY_AGAIN_S_MIN", 0.05)
    async with served() as (server, client):
        letters = DeadLetters(1, initial_subscription="found")
        consumer: Any = await client.consumer(
            TOPIC, "s", **SHARED, dead_letters=letters, negative_ack_delay_s=0.01
        )
        ended = await consumer.letters._producer(consumer.letters.dead_topic)
        await ended.close()
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"bad")
        async with asyncio.timeout(10):
            for _ in range(2):
                consumer.negative_acknowledge(await consumer.receive())
            dead = await client.consumer(f"{TOPIC}-s-DLQ", "found")
            assert (await dead.receive()).value == b"bad"
            while await backlog_of(server, TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_a_message_can_be_had_again_later() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", **SHARED, dead_letters=DeadLetters(1))
        dead = await client.consumer(f"{TOPIC}-s-DLQ", "found")
        producer = await client.producer(TOPIC)
        await producer.send(b"x", key=b"\x00\xff")
        first = await consumer.receive()
        await consumer.reconsume_later(first, delay_s=0.2, properties={"why": "busy"})
        again = await consumer.receive()
        assert again.topic == f"{TOPIC}-s-RETRY"
        assert again.properties["RECONSUMETIMES"] == "1"
        assert again.properties["why"] == "busy"
        assert again.properties["REAL_TOPIC"] == TOPIC
        assert again.key_bytes == b"\x00\xff"
        await consumer.reconsume_later(again, delay_s=0.1)
        buried = await dead.receive()
        assert (buried.value, buried.properties["RECONSUMETIMES"]) == (b"x", "2")
        assert buried.properties["REAL_TOPIC"] == TOPIC
        plain = await client.consumer(TOPIC, "t", **SHARED)
        with pytest.raises(ConfigError, match="no retry topic"):
            await plain.reconsume_later(first, delay_s=1)
        with pytest.raises(ConfigError, match="shared and key_shared"):
            await client.consumer(TOPIC, "u", dead_letters=DeadLetters(1))
        with pytest.raises(ConfigError):
            DeadLetters(0)


async def test_producers_of_letters_are_closed_with_their_consumer() -> None:
    async with served() as (server, client):
        letters = DeadLetters(1, initial_subscription="found")
        consumer: Any = await client.consumer(TOPIC, "s", **SHARED, dead_letters=letters)
        opened = await consumer.letters._producer(consumer.letters.dead_topic)
        (topic,) = [each for each in server._broker.topics.all() if str(each.name).endswith("DLQ")]
        assert len(topic.producers) == 1
        await consumer.close()
        assert opened.closed
        assert not topic.producers
        with pytest.raises(AlreadyClosed):
            await consumer.letters._producer(consumer.letters.dead_topic)
        assert not topic.producers


async def test_delays() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", **SHARED)
        producer = await client.producer(TOPIC)
        now_ms = client.runtime.clock.wall_ms()
        await producer.send(b"later", deliver_after_s=0.5)
        await producer.send(b"soon", deliver_at_ms=now_ms + 200)
        await producer.send(b"now")
        got = [await consumer.receive() for _ in range(3)]
        assert [message.value for message in got] == [b"now", b"soon", b"later"]
        assert client.runtime.clock.wall_ms() >= now_ms + 500
        with pytest.raises(InputError, match="exclude each other"):
            await producer.send(b"x", deliver_at_ms=1, deliver_after_s=1)


@pytest.mark.goal("core.B23", part="producer", broken_by="sdk_waits_for_nobody")
async def test_a_topic_of_ones_own() -> None:
    async with served() as (server, client), Client(server.service_url) as other:
        owner = await client.producer(TOPIC, access_mode="exclusive")
        with pytest.raises(BrokerRefused, match=r"ProducerFenced|ProducerBusy"):
            await other.producer(TOPIC, access_mode="exclusive")
        waiting = asyncio.ensure_future(other.producer(TOPIC, access_mode="wait_for_exclusive"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await owner.send(b"1")
        await owner.close()
        heir = await waiting
        await heir.send(b"2")
        taker = await client.producer(TOPIC, access_mode="exclusive_with_fencing")
        await taker.send(b"3")
        with pytest.raises((BrokerRefused, AlreadyClosed, OutcomeUnknown)):
            await heir.send(b"4")
        with pytest.raises(ConfigError, match="no access mode"):
            await client.producer(TOPIC, access_mode="mine")  # type: ignore[arg-type]


async def test_ranges_of_keys() -> None:
    async with served() as (_, client):
        low = await client.consumer(
            TOPIC, "s", subscription_type="key_shared", key_ranges=[(0, 32_767)]
        )
        high = await client.consumer(
            TOPIC, "s", subscription_type="key_shared", key_ranges=[(32_768, 65_535)]
        )
        with pytest.raises(BrokerRefused, match="ConsumerAssignError"):
            await client.consumer(TOPIC, "s", subscription_type="key_shared", key_ranges=[(5, 6)])
        producer = await client.producer(TOPIC, batching=None)
        for number in range(40):
            await producer.send(b"x", key=f"k{number}")
        await asyncio.sleep(0.1)
        assert low.queued_messages + high.queued_messages == 40
        assert low.queued_messages
        assert high.queued_messages
        for wrong in ([(5, 4)], [(0, 65_536)]):
            with pytest.raises(ConfigError, match="no range"):
                await client.consumer(TOPIC, "s", subscription_type="key_shared", key_ranges=wrong)
        with pytest.raises(ConfigError, match="key_shared"):
            await client.consumer(TOPIC, "s", key_ranges=[(1, 2)])
