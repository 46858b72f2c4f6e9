"""Real bookies on Pulsar's metadata driver are led to Oxia under a broker of ours, under load.

Then ZooKeeper is stopped, every bookie is restarted with the URI of Oxia and the broker with the
configuration it had; every message that was acknowledged is read back, and every change of metadata
is found. The bookies collect garbage every second all the while: what is deleted goes from their
disks, what has a name stays.
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

from anabranch.client import Client
from anabranch.client.admin import AdminClient
from anabranch.client.admin.refusals import AdminRefused
from anabranch.ledgers.bookkeeper.inspection import CheckedCopies, LedgersOnBookies
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.managed_ledger.references import named_ledgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH, PARTICIPANTS_PATH
from anabranch.runtime.real import real_runtime
from anabranch.testing.admin_load import AdminLoad
from anabranch.testing.servers import pulsar_client
from anabranch.testing.servers.collected_ledgers import COLLECT_OFTEN, GarbageLoad
from anabranch.testing.servers.replaceable_cluster import ReplaceableCluster, led_cluster

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

TOPIC = "persistent://public/default/led"
KEPT = "persistent://public/default/kept"
"""Nobody writes to it most of the time: its ledgers are closed."""
KEPT_LEDGERS = 4
KEPT_EACH = 20
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


async def keep(cluster: ReplaceableCluster, first: int) -> None:
    """Publish numbers to a topic, in several ledgers that are closed afterwards."""
    last = first + KEPT_LEDGERS * KEPT_EACH
    async with (
        Client(cluster.brokers.service_url) as client,
        AdminClient(cluster.web_urls[0]) as admin,
    ):
        await (await client.consumer(KEPT, "keeps", initial_position="earliest")).close()
        for begin in range(first, last, KEPT_EACH):
            producer = await client.producer(KEPT)
            for number in range(begin, begin + KEPT_EACH):
                await producer.send(b"%d" % number)
            await producer.close()
            await admin.topics.unload(KEPT)


async def check_named(url: str) -> int:
    """Every bookie has every entry of every ledger that anything names; returns how many."""
    store = await open_store(url, real_runtime())
    ledgers = await LedgersOnBookies.open(real_runtime(), store, BookKeeperSettings())
    checked = CheckedCopies()
    for ledger_id in await named_ledgers(store):
        await ledgers.check(await ledgers.look(ledger_id), checked, lambda _: None)
    await ledgers.close()
    await store.close()
    assert (checked.lacking, checked.unreachable, checked.damage) == (0, 0, [])
    assert checked.copies == 2 * checked.entries > 0
    return checked.ledgers


async def lead(
    cluster: ReplaceableCluster, sending: Sending, load: AdminLoad, garbage: GarbageLoad
) -> dict[str, Any]:
    """All of it, until ZooKeeper can be stopped; returns the status in the end."""
    await keep(cluster, 0)
    load.begin()
    garbage.begin()
    try:
        return await follow(cluster, sending, garbage)
    finally:
        await load.stop()
        await garbage.stop()


async def follow(
    cluster: ReplaceableCluster, sending: Sending, garbage: GarbageLoad
) -> dict[str, Any]:
    runtime = real_runtime()
    source = await open_store(cluster.source.url, runtime)
    bookies = sorted(f"127.0.0.1:{port}" for port in cluster.bookies.ports)

    async def all_registered() -> bool:
        return await registered(source) == bookies

    await eventually(all_registered)
    assert len(await source.children(PARTICIPANTS_PATH)) == len(bookies)
    await sending.more()
    await garbage.more()
    async with AdminClient(cluster.web_urls[0]) as admin:
        plan = await admin.metadata_migration.plan({"target": cluster.target.url})
        assert plan["blockers"] == []
        assert any("led by Pulsar's migration flag" in note for note in plan["notes"]), plan
        await admin.metadata_migration.start({"target": cluster.target.url})
        await rests(admin, "switched")
        await sending.more()
        await keep(cluster, KEPT_LEDGERS * KEPT_EACH)
        await garbage.more()
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
        finalized = await rests(admin, "finalized")
        await garbage.more()
        await target.close()
    await source.close()
    return finalized


def collected_in(garbage: GarbageLoad, trail: list[dict[str, Any]]) -> dict[str, int]:
    """How many ledgers were deleted, and gone from the bookies, within each part of the way."""
    begun_ms: dict[str, int] = {}
    for line in trail:
        begun_ms.setdefault(line["phase"], line["at_ms"])
    edges = [begun_ms[phase] for phase in ("preparing", "switched", "finalized")]
    found = {"before": 0, "on the way": 0, "switched": 0, "finalized": 0}
    for each in garbage.collected:
        within = [sum(at_ms >= edge for edge in edges) for at_ms in (each.deleted_ms, each.gone_ms)]
        if within[0] == within[1]:
            found[list(found)[within[0]]] += 1
    return found


def read_back(service_url: str, topic: str, count: int) -> list[int]:
    with pulsar_client(service_url, operation_timeout_seconds=60) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
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
@pytest.mark.goal("rel.A28", part="bookies")
def test_bookies_follow_and_every_acknowledged_message_is_read_back(tmp_path: Path) -> None:
    with led_cluster(tmp_path / "servers", bookie_settings=COLLECT_OFTEN) as cluster:
        target = cluster.target.url
        load = AdminLoad(cluster.web_urls)
        garbage = GarbageLoad(
            cluster.brokers.service_url, cluster.web_urls[0], cluster.bookies.ports
        )
        with Sending(cluster.brokers.service_url) as sending:
            ended = asyncio.run(lead(cluster, sending, load, garbage))
            asyncio.run(left(cluster))
            cluster.source.members[0].stop()
            asyncio.run(sending.more())
        print("\n".join(ended["lines"]))
        for before, after in zip(ended["trail"], ended["trail"][1:], strict=False):
            print(f"{before['phase']:12} {after['at_ms'] - before['at_ms']} ms")
        collected = collected_in(garbage, ended["trail"])
        named = asyncio.run(check_named(target))
        cluster.bookies.move(target)
        (broker,) = cluster.brokers.members
        broker.stop()
        broker.start()
        found = read_back(cluster.brokers.service_url, TOPIC, len(sending.acknowledged))
        kept = read_back(cluster.brokers.service_url, KEPT, 2 * KEPT_LEDGERS * KEPT_EACH)
        not_found = asyncio.run(load.check(cluster.web_urls[0]))
    print(f"{len(found)} messages, {load.acknowledged} metadata writes, {load.retried} sent again")
    print(f"{named} ledgers with names are whole; collected: {collected}, {garbage.again}")
    assert sending.refused == []
    assert len(sending.acknowledged) > 60
    assert load.acknowledged > 20
    assert not_found == []
    assert found == sending.acknowledged, "each once, in order"
    assert kept == [*range(2 * KEPT_LEDGERS * KEPT_EACH)], "each once, in order"
    assert named > 2 * KEPT_LEDGERS
    assert min(collected.values()) > 0, "bookies collected all the time"
