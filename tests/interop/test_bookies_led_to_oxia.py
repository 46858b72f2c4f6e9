"""Real bookies on Pulsar's metadata driver are led to Oxia under a broker of ours, under load.

Then ZooKeeper is stopped, every bookie is restarted with the URI of Oxia and the broker with the
configuration it had; every message that was acknowledged is read back, and every change of metadata
is found.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pulsar
import pytest

from anabranch.client.admin import AdminClient
from anabranch.client.admin.refusals import AdminRefused
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH, PARTICIPANTS_PATH
from anabranch.runtime.real import real_runtime
from anabranch.testing.admin_load import AdminLoad
from anabranch.testing.servers import pulsar_client
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, led_cluster

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

TOPIC = "persistent://public/default/led"
LONG_S = 120.0
SEND_REST_S = 0.02
BOOKIES = "/ledgers/available"


class Sending:
    """A stock producer that sends numbers, one after the other, and notes what is acknowledged."""

    def __init__(self, service_url: str) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self._over = Event()
        self._service_url = service_url
        self._thread = Thread(target=self._send)

    def __enter__(self) -> "Sending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        with pulsar_client(self._service_url, operation_timeout_seconds=60) as client:
            producer = client.create_producer(TOPIC, send_timeout_millis=60_000)
            number = 0
            while not self._over.is_set():
                try:
                    producer.send(b"%d" % number)
                except pulsar.PulsarException as error:
                    self.refused.append(str(error))
                else:
                    self.acknowledged.append(number)
                number += 1
                time.sleep(SEND_REST_S)

    async def more(self, count: int = 20) -> None:
        """Wait until so many more are acknowledged."""
        enough = len(self.acknowledged) + count

        async def is_enough() -> bool:
            return len(self.acknowledged) >= enough

        await eventually(is_enough)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG_S):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def rests(admin: AdminClient, phase: str) -> dict[str, Any]:
    """Wait for a phase; an attempt that failed is not waited for."""
    found: dict[str, Any] = {}

    async def is_there() -> bool:
        found.update(await admin.metadata_migration.status())
        assert not found["error"], found["error"]
        return bool(found["phase"] == phase)

    await eventually(is_there)
    return found


async def registered(store: MetadataStore) -> list[str]:
    return [name for name in await store.children(BOOKIES) if name != "readonly"]


async def lead(cluster: ReplaceableCluster, sending: Sending, load: AdminLoad) -> dict[str, Any]:
    """All of it, until ZooKeeper can be stopped; returns the status at the switch."""
    load.begin()
    try:
        return await follow(cluster, sending)
    finally:
        await load.stop()


async def follow(cluster: ReplaceableCluster, sending: Sending) -> dict[str, Any]:
    runtime = real_runtime()
    source = await open_store(cluster.source.url, runtime)
    bookies = sorted(f"127.0.0.1:{port}" for port in cluster.bookies.ports)

    async def all_registered() -> bool:
        return await registered(source) == bookies

    await eventually(all_registered)
    assert len(await source.children(PARTICIPANTS_PATH)) == len(bookies)
    await sending.more()
    async with AdminClient(cluster.web_urls[0]) as admin:
        plan = await admin.metadata_migration.plan({"target": cluster.target.url})
        assert plan["blockers"] == []
        assert any("led by Pulsar's migration flag" in note for note in plan["notes"]), plan
        await admin.metadata_migration.start({"target": cluster.target.url})
        switched = await rests(admin, "switched")
        await sending.more()
        flag = await source.get(FLAG_PATH)
        assert flag is not None
        assert json.loads(flag.value) == {"phase": "COMPLETED", "targetUrl": cluster.target.url}
        target = await open_store(cluster.target.url, runtime)
        assert await registered(target) == bookies
        assert not await target.exists("/pulsar/migration-coordinator")
        await admin.topics.create("persistent://public/default/made-after")
        with pytest.raises(AdminRefused, match="has no way back: bookie") as refused:
            await admin.metadata_migration.ask("rollback")
        assert refused.value.status == 409
        await admin.metadata_migration.ask("finalize")
        await rests(admin, "finalized")
        await target.close()
    await source.close()
    return switched


def read_back(service_url: str, count: int) -> list[int]:
    with pulsar_client(service_url, operation_timeout_seconds=60) as client:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found: list[int] = []
        while len(found) < count or reader.has_message_available():
            found.append(int(reader.read_next(timeout_millis=60_000).data()))
        return found


async def left(cluster: ReplaceableCluster) -> None:
    """The broker lets go of the old store."""
    (broker,) = cluster.brokers.members

    async def let_go() -> bool:
        return "store_left_for_good" in broker.log.read_text()

    await eventually(let_go)


@pytest.mark.goal("454.A36", part="bookies")
def test_bookies_follow_and_every_acknowledged_message_is_read_back(tmp_path: Path) -> None:
    with led_cluster(tmp_path / "servers") as cluster:
        load = AdminLoad(cluster.web_urls)
        with Sending(cluster.brokers.service_url) as sending:
            switched = asyncio.run(lead(cluster, sending, load))
            asyncio.run(left(cluster))
            cluster.source.members[0].stop()
            asyncio.run(sending.more())
        print("\n".join(switched["lines"]))
        for before, after in zip(switched["trail"], switched["trail"][1:], strict=False):
            print(f"{before['phase']:12} {after['at_ms'] - before['at_ms']} ms")
        cluster.bookies.move(cluster.target.url)
        (broker,) = cluster.brokers.members
        broker.stop()
        broker.start()
        found = read_back(cluster.brokers.service_url, len(sending.acknowledged))
        not_found = asyncio.run(load.check(cluster.web_urls[0]))
    print(f"{len(found)} messages, {load.acknowledged} metadata writes, {load.retried} sent again")
    assert sending.refused == []
    assert len(sending.acknowledged) > 60
    assert load.acknowledged > 20
    assert not_found == []
    assert found == sending.acknowledged, "each once, in order"
