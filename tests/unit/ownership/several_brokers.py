"""Several brokers in this process, on one metadata store and one ledger store in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from anabranch.broker import Broker, BrokerSettings
from anabranch.client import Client
from anabranch.ids import TopicName
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.ownership import BrokerAddress, Bundle, ClusterOwnership
from anabranch.ownership.bundles import equal_boundaries
from anabranch.runtime.network import Listener
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

TOPIC = "persistent://public/default/orders"
NAME = TopicName.parse(TOPIC)


class Member:
    """One broker with its own session."""

    def __init__(
        self,
        store: LocalHandle,
        broker: Broker,
        ownership: ClusterOwnership,
        tasks: Tasks,
        listener: Listener,
        managed_ledgers: ManagedLedgers,
    ) -> None:
        self.store = store
        self.broker = broker
        self.ownership = ownership
        self.tasks = tasks
        self.listener = listener
        self.managed_ledgers = managed_ledgers
        self.alive = True
        self.url = ownership.me.service_url

    @property
    def id(self) -> str:
        return self.ownership.me.broker_id

    async def kill(self) -> None:
        """Nothing of it goes on, and nothing is given back."""
        self.alive = False
        await self.listener.close()
        await self.tasks.close()
        await self.store.close()
        await settle()

    async def stop(self) -> None:
        if self.alive:
            await self.listener.close()
            await self.broker.close()
            await self.managed_ledgers.close()
            await self.tasks.close()
            await self.store.close()

    async def lose_session(self) -> None:
        """What happens to a broker that was stopped for too long."""
        await self.store.end_session(self.store.session)
        await settle()


class SeveralBrokers:
    """The brokers, and what they share."""

    def __init__(self, base: MemoryStore) -> None:
        self.base = base
        self.runtime = real_runtime()
        self.ledgers = MemoryLedgerStore()
        self.members: list[Member] = []
        self.failures: list[BaseException] = []
        self.held = AsyncExitStack()

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    def client(self, member: Member | None = None) -> Client:
        urls = [each.url for each in self.members] if member is None else [member.url]
        hosts = ",".join(url.removeprefix("pulsar://") for url in urls)
        return Client(f"pulsar://{hosts}", on_failure=lambda _, e: self.failures.append(e))

    async def add(self) -> Member:
        store = await self.base.handle()
        tasks = Tasks(lambda _, failure: self.failures.append(failure))
        brokers: list[Broker] = []
        listener = await self.runtime.network.listen(
            "127.0.0.1",
            0,
            lambda: brokers[0].new_connection(),  # noqa: PLW0108 - it is not there yet
        )
        url = f"pulsar://127.0.0.1:{listener.port}"
        name = f"127.0.0.1:{listener.port}"
        me = BrokerAddress(name, url, web_url=f"http://{name}")
        ownership = ClusterOwnership(store, self.runtime, tasks, me)
        managed = ManagedLedgers(metadata=store, ledgers=self.ledgers, runtime=self.runtime)
        broker = Broker(
            runtime=self.runtime,
            metadata=store,
            managed_ledgers=managed,
            settings=BrokerSettings(service_url=url, creates_defaults=False),
            tasks=tasks,
            ownership=ownership,
        )
        brokers.append(broker)
        await broker.start()
        member = Member(store, broker, ownership, tasks, listener, managed)
        self.held.push_async_callback(member.stop)
        self.members.append(member)
        await settle()
        return member

    async def owner(self) -> Member:
        """Who owns the topic, by what any broker says."""
        found = await self.members[0].ownership.locate(NAME)
        return next(each for each in self.members if each.id == found.broker.broker_id)

    async def bundle(self) -> Bundle:
        layout = await self.members[0].ownership.layouts.of("public/default")
        return layout.of(NAME)


@asynccontextmanager
async def several_brokers(count: int = 3, **policies: object) -> AsyncIterator[SeveralBrokers]:
    """Run brokers, with these policies of the namespace; a failed task of any fails the test."""
    runtime = real_runtime()
    base = MemoryStore(runtime.clock)
    boundaries = equal_boundaries(4)
    document = {"bundles": {"boundaries": boundaries, "numBundles": 4}, **policies}
    await base.put("/admin/policies/public/default", json.dumps(document).encode())
    brokers = SeveralBrokers(base)
    async with asyncio.timeout(20):
        try:
            for _ in range(count):
                await brokers.add()
            yield brokers
        finally:
            await brokers.held.aclose()
            await base.close()
    assert not brokers.failures, brokers.failures


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
