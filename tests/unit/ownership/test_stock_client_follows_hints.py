"""The stock client goes where an owner that gives a bundle up sends it, and asks nobody."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from several_brokers import NAME, TOPIC, SeveralBrokers, several_brokers

from anabranch.broker.unloading import unload
from anabranch.ids import TopicName
from anabranch.testing.servers import pulsar_client

MESSAGES = 20


@contextmanager
def counted_lookups(
    brokers: SeveralBrokers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The brokers that were asked for an owner, in order."""
    asked: list[str] = []
    with monkeypatch.context() as patch:
        for member in brokers.members:

            async def locate(
                topic: TopicName,
                *,
                authoritative: bool = False,
                who: str = member.id,
                there: Any = member.ownership.locate,
            ) -> Any:
                asked.append(who)
                return await there(topic, authoritative=authoritative)

            patch.setattr(member.ownership, "locate", locate)
        yield asked


class Clients:
    """A producer and a consumer of the stock client; every call blocks."""

    def __init__(self, url: str) -> None:
        self._held = pulsar_client(url)
        client = self._held.__enter__()
        self.consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
        self.producer = client.create_producer(TOPIC, batching_enabled=False)

    def pass_messages(self, prefix: str) -> None:
        """Send and receive some, each once."""
        for number in range(MESSAGES):
            self.producer.send(f"{prefix} {number}".encode())
        seen = []
        for _ in range(MESSAGES):
            message = self.consumer.receive(timeout_millis=20_000)
            self.consumer.acknowledge(message)
            seen.append(message.data().decode())
        assert sorted(seen) == sorted(f"{prefix} {number}" for number in range(MESSAGES))

    def close(self) -> None:
        self._held.__exit__(None, None, None)


@pytest.mark.goal("core.B14", part="unload", broken_by="clients_leave_before_the_lock")
async def test_an_unload_with_a_hint_costs_the_stock_client_no_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several_brokers() as brokers:
        url = "pulsar://" + ",".join(m.url.removeprefix("pulsar://") for m in brokers.members)
        with counted_lookups(brokers, monkeypatch) as asked:
            clients = await asyncio.to_thread(Clients, url)
            assert asked, "somebody has to be asked at first"
        try:
            await asyncio.to_thread(clients.pass_messages, "before")
            owner = await brokers.owner()
            with counted_lookups(brokers, monkeypatch) as asked:
                for round_ in range(3):
                    bundle = await brokers.bundle()
                    (target, *_) = [each for each in brokers.members if each is not owner]
                    await unload(owner.broker, bundle, target.id)
                    await asyncio.to_thread(clients.pass_messages, f"round {round_}")
                    assert target.ownership.owns(NAME)
                    owner = target
                assert asked == []
        finally:
            await asyncio.to_thread(clients.close)
