"""The admin client on a server in this process: every call, its refusals, and lost connections."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from served_client import served_with_web

from anabranch.client import EARLIEST, Client, MessageId, Schema, Token
from anabranch.client.admin import (
    POLICIES,
    TOPIC_POLICIES,
    AdminClient,
    AdminConflict,
    AdminDenied,
    AdminNotFound,
    AdminRefused,
    topic_policies,
)
from anabranch.client.admin import namespace_policies as policies
from anabranch.client.admin.web import WebClient
from anabranch.errors import ConfigError, InvalidName, OutcomeUnknown, ProtocolError, Unreachable
from anabranch.policies import BacklogQuota, RetentionRule
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone

NAMESPACE = "public/default"
TOPIC = "persistent://public/default/admin ü"


@pytest.fixture
async def server() -> AsyncIterator[Standalone]:
    async with served_with_web() as running:
        yield running


@pytest.fixture
async def admin(server: Standalone) -> AsyncIterator[AdminClient]:
    async with AdminClient(server.web_url) as client:
        yield client


@pytest.mark.goal("core.B23", part="admin", broken_by="admin_client_believes_every_answer")
async def test_tenants_and_namespaces(admin: AdminClient) -> None:
    await admin.clusters.check_health()
    (cluster,) = await admin.clusters.names()
    assert (await admin.clusters.info(cluster)).broker_service_url
    assert len(await admin.clusters.brokers(cluster)) == 1
    await admin.tenants.create("shop", clusters=[cluster], admin_roles=["boss"])
    assert await admin.tenants.names() == ["public", "shop"]
    await admin.tenants.update("shop", clusters=[cluster], admin_roles=["chief"])
    assert (await admin.tenants.info("shop")).admin_roles == ("chief",)
    await admin.namespaces.create("shop/orders", bundles=2)
    assert await admin.namespaces.names("shop") == ["shop/orders"]
    with pytest.raises(AdminConflict) as refused:
        await admin.namespaces.create("shop/orders")
    assert (refused.value.status, refused.value.reason) == (409, "Namespace already exists")
    found = await admin.namespaces.policies("shop/orders")
    assert found.bundles is not None
    assert found.bundles.num_bundles == 2
    with pytest.raises(AdminConflict):
        await admin.tenants.delete("shop")
    await admin.namespaces.delete("shop/orders")
    await admin.tenants.delete("shop")
    with pytest.raises(AdminNotFound):
        await admin.tenants.info("shop")


async def test_policies_and_permissions(admin: AdminClient) -> None:
    spaces = admin.namespaces
    rule = RetentionRule(time_minutes=10, size_mb=5)
    await spaces.set_policy(NAMESPACE, policies.RETENTION, rule)
    assert await spaces.policy(NAMESPACE, policies.RETENTION) == rule
    await spaces.clear_policy(NAMESPACE, policies.RETENTION)
    assert await spaces.policy(NAMESPACE, policies.RETENTION) is None
    await spaces.set_policy(NAMESPACE, policies.MESSAGE_TTL_S, 60)
    await spaces.set_policy(NAMESPACE, policies.SUBSCRIPTION_TYPES, ("Shared",))
    found = await spaces.policies(NAMESPACE)
    assert (found.message_ttl_s, found.subscription_types_enabled) == (60, ("Shared",))
    with pytest.raises(AdminRefused, match="message TTL must >= 0"):
        await spaces.set_policy(NAMESPACE, policies.MESSAGE_TTL_S, -1)
    quota = BacklogQuota(limit_size=100, policy="consumer_backlog_eviction")
    await spaces.set_backlog_quota(NAMESPACE, quota)
    assert (await spaces.backlog_quotas(NAMESPACE))["destination_storage"].bytes_max == 100
    await spaces.clear_backlog_quota(NAMESPACE)
    assert await spaces.backlog_quotas(NAMESPACE) == {}
    await spaces.grant(NAMESPACE, "clerk", ["produce", "consume"])
    assert await spaces.permissions(NAMESPACE) == {"clerk": ["consume", "produce"]}
    await spaces.revoke(NAMESPACE, "clerk")
    assert await spaces.permissions(NAMESPACE) == {}


SET_FROM_THE_START: dict[str, object] = {
    "encryption-required": False,
    "max-topics": 0,
    "properties": {},
    "schema-auto-update": True,
    "schema-compatibility": "UNDEFINED",
    "schema-validation-enforced": False,
    "subscription-types": (),
}
"""What a namespace has before anybody sets anything."""


async def test_every_policy_is_found_by_the_server(admin: AdminClient) -> None:
    found = {
        name: await admin.namespaces.policy(NAMESPACE, policy) for name, policy in POLICIES.items()
    }
    assert {name: value for name, value in found.items() if value is not None} == SET_FROM_THE_START


@pytest.mark.goal("core.B23", part="admin", broken_by="sdk_clears_nothing")
async def test_policies_of_topics(admin: AdminClient) -> None:
    topics, topic = admin.topics, f"{NAMESPACE}/t"
    await topics.create(topic)
    rule = RetentionRule(time_minutes=10, size_mb=20)
    await topics.set_policy(topic, topic_policies.RETENTION, rule)
    assert await topics.policy(topic, topic_policies.RETENTION) == rule
    await topics.set_policy(topic, topic_policies.MESSAGE_TTL_S, 60)
    assert await topics.policy(topic, topic_policies.MESSAGE_TTL_S) == 60
    with pytest.raises(AdminRefused):
        await topics.set_policy(topic, topic_policies.MESSAGE_TTL_S, -1)
    await topics.set_policy(topic, topic_policies.SUBSCRIPTION_TYPES, ("Shared",))
    assert await topics.policy(topic, topic_policies.SUBSCRIPTION_TYPES) == ("Shared",)
    await topics.clear_policy(topic, topic_policies.RETENTION)
    assert await topics.policy(topic, topic_policies.RETENTION) is None
    counts = await topics.policy_that_counts(topic, topic_policies.RETENTION)
    assert counts == RetentionRule()
    quota = BacklogQuota(limit_size=100, policy="producer_exception")
    await topics.set_backlog_quota(topic, quota)
    assert (await topics.backlog_quotas(topic))["destination_storage"].bytes_max == 100
    await topics.clear_backlog_quota(topic)
    assert await topics.backlog_quotas(topic) == {}
    for policy in TOPIC_POLICIES.values():
        await topics.policy(topic, policy)


def test_values_of_policies_are_checked() -> None:
    with pytest.raises(ConfigError, match="message-ttl has to be a whole number"):
        policies.MESSAGE_TTL_S.read("60")
    with pytest.raises(ConfigError, match="retentionTimeInMinutes"):
        policies.RETENTION.read({"retentionTimeInMinutes": "x"})


@pytest.mark.goal("core.B23", part="admin", broken_by="admin_client_believes_every_answer")
async def test_topics_subscriptions_and_figures(server: Standalone, admin: AdminClient) -> None:
    topics, subscriptions = admin.topics, admin.subscriptions
    assert not await topics.exists(TOPIC)
    await topics.create(TOPIC, properties={"owner": "me"})
    assert await topics.properties(TOPIC) == {"owner": "me"}
    await topics.set_properties(TOPIC, {"a": "b"})
    await topics.remove_property(TOPIC, "owner")
    assert await topics.properties(TOPIC) == {"a": "b"}
    assert await topics.names(NAMESPACE) == await admin.namespaces.topics(NAMESPACE) == [TOPIC]
    await subscriptions.create(TOPIC, "s t/ü", at=EARLIEST)
    assert await subscriptions.names(TOPIC) == ["s t/ü"]
    async with Client(server.service_url) as client:
        producer = await client.producer(TOPIC, batching=None)
        ids = [await producer.send(b"%d" % n, key="k", properties={"p": "q"}) for n in range(5)]
    stats = await topics.stats(TOPIC)
    assert stats.subscriptions["s t/ü"].messages_backlog == 5
    assert stats.storage_size > 0
    assert "cursors" in await topics.internal_stats(TOPIC)
    peeked = await subscriptions.peek(TOPIC, "s t/ü", 2)
    assert (peeked.id, peeked.data, peeked.key) == (f"{ids[1].position}", b"1", "k")
    assert (peeked.properties, peeked.batch_messages) == ({"p": "q"}, 0)
    await subscriptions.skip(TOPIC, "s t/ü", 2)
    await subscriptions.set_properties(TOPIC, "s t/ü", {"x": "y"})
    assert await subscriptions.properties(TOPIC, "s t/ü") == {"x": "y"}
    assert (await topics.stats(TOPIC)).subscriptions["s t/ü"].messages_backlog == 3
    await subscriptions.skip_all(TOPIC, "s t/ü")
    await subscriptions.reset(TOPIC, "s t/ü", ids[3])
    assert (await topics.stats(TOPIC)).subscriptions["s t/ü"].messages_backlog == 2
    await subscriptions.reset(TOPIC, "s t/ü", 0)
    await admin.namespaces.clear_backlog(NAMESPACE)
    with pytest.raises(AdminRefused):
        await subscriptions.expire(TOPIC, "s t/ü", 1000)
    assert (await topics.last_message_id(TOPIC)).position == ids[-1].position
    assert (await topics.message_id_at(TOPIC, 0)).position == ids[0].position
    await topics.unload(TOPIC)
    await admin.namespaces.unload(NAMESPACE)
    assert (await topics.terminate(TOPIC)).position == ids[-1].position
    await topics.truncate(TOPIC)
    await topics.grant(TOPIC, "clerk", ["consume"])
    assert await topics.permissions(TOPIC) == {"clerk": ["consume"]}
    await topics.revoke(TOPIC, "clerk")
    await subscriptions.delete(TOPIC, "s t/ü")
    await topics.delete(TOPIC)
    with pytest.raises(AdminNotFound, match="not found"):
        await topics.stats(TOPIC)


async def test_partitioned_topics(admin: AdminClient) -> None:
    topics = admin.topics
    await topics.create_partitioned("many", 2)
    assert await topics.partitions("many") == 2
    await topics.add_partitions("many", 3)
    assert await topics.names_of_partitioned(NAMESPACE) == ["persistent://public/default/many"]
    assert len((await topics.partitioned_stats("many")).partitions) == 3
    await topics.delete_partitioned("many", force=True)
    assert await topics.names(NAMESPACE) == []


async def test_schemas(admin: AdminClient) -> None:
    first = Schema("Json", _record(["a"]))
    other = Schema("Json", _record(["a", "b"]))
    with pytest.raises(AdminNotFound):
        await admin.schemas.get_newest("typed")
    assert await admin.schemas.add("typed", first) == 0
    assert await admin.schemas.add("typed", first) == 0
    assert not await admin.schemas.is_compatible("typed", other)
    found = await admin.schemas.get_newest("typed")
    assert (found.type, found.version, found.data.encode()) == ("JSON", 0, first.data)
    assert await admin.schemas.get_version("typed", 0) == found
    assert await admin.schemas.versions("typed") == [found]
    await admin.schemas.delete("typed")


def _record(names: list[str]) -> bytes:
    fields = [{"name": name, "type": "string"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields}).encode()


async def test_wrong_names_are_refused_before_anybody_is_asked() -> None:
    admin = AdminClient("http://127.0.0.1:1")
    for name in ("no-slash", "a/b/c", "a/.."):
        with pytest.raises(InvalidName):
            await admin.namespaces.create(name)
    with pytest.raises(InvalidName):
        await admin.topics.create("persistent://a/b")
    with pytest.raises(InvalidName):
        await admin.tenants.create("a/b", clusters=[])
    with pytest.raises(Unreachable, match="is the server running"):
        await admin.tenants.names()
    with pytest.raises(ConfigError, match="http://host:port"):
        AdminClient("pulsar://127.0.0.1:6650")


async def test_credentials_are_shown(tmp_path: Path) -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    (tmp_path / "secret").write_bytes(secret)
    async with served_with_web(
        authentication="token",
        token_secret_key=str(tmp_path / "secret"),
        superuser_roles="root",
    ) as server:
        for role, allowed in (("root", True), ("other", False)):
            token = Token(jwt.encode({"sub": role}, secret, algorithm="HS256"))
            async with AdminClient(server.web_url, credentials=token) as admin:
                if allowed:
                    assert await admin.tenants.names() == ["public"]
                else:
                    with pytest.raises(AdminDenied):
                        await admin.tenants.names()


class Scripted:
    """A server that answers each connection with the next of some texts, and then closes it."""

    def __init__(self, texts: list[bytes]) -> None:
        self._texts = texts

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._texts.pop(0))
        self._transport.close()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


OK = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n["a"]'
LOST = b""
REDIRECTED = b"HTTP/1.1 307 x\r\nLocation: /admin/v2/tenants?x=1\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.goal("core.B23", part="admin", broken_by="admin_client_repeats_changes")
async def test_lost_connections_and_redirects() -> None:
    texts: list[bytes] = []
    listener = await real_runtime().network.listen("127.0.0.1", 0, lambda: Scripted(texts))
    try:
        async with asyncio.timeout(20), AdminClient(f"http://127.0.0.1:{listener.port}") as admin:
            texts[:] = [REDIRECTED, OK]
            assert await admin.tenants.names() == ["a"]
            # The server has closed what was kept; a question may be asked again.
            texts[:] = [OK, OK]
            assert await admin.tenants.names() == ["a"]
            texts[:] = [LOST, LOST]
            with pytest.raises(OutcomeUnknown):
                await admin.tenants.delete("a")
            assert texts == [LOST], "a change is not asked for twice"
            texts[:] = [REDIRECTED] * 20
            with pytest.raises(ProtocolError, match="redirected 5 times"):
                await admin.tenants.names()
    finally:
        await listener.close()


async def test_what_looks_through_a_whole_store_first_is_waited_for() -> None:
    """Others would be told of no answer while an operation begins."""

    class Slow(Scripted):
        def data_received(self, data: bytes, /) -> None:
            asyncio.get_running_loop().call_later(0.3, super().data_received, data)

    texts = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"] * 5
    listener = await real_runtime().network.listen("127.0.0.1", 0, lambda: Slow(texts))
    try:
        url = f"http://127.0.0.1:{listener.port}"
        async with AdminClient(url, timeout_s=0.1) as admin:
            assert await admin.metadata_migration.plan({}) == {}
            assert await admin.metadata_migration.start({}) == {}
            with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.1 s"):
                await admin.metadata_migration.ask("abort")
    finally:
        await listener.close()


async def test_a_port_without_a_web_interface_is_named(server: Standalone) -> None:
    place = server.service_url.removeprefix("pulsar://")
    async with AdminClient(f"http://{place}") as client:
        with pytest.raises(ProtocolError, match=f"from {place} that is no HTTP.*usually 8080"):
            await client.tenants.names()


async def test_a_redirect_out_of_tls_is_not_followed() -> None:
    asked: list[bool] = []
    answer = b"HTTP/1.1 307 x\r\nLocation: http://b:1/x\r\nContent-Length: 0\r\n\r\n"

    class Scripts:
        async def connect(self, _host: str, _port: int, make: Any, *, tls: Any = None) -> Any:
            asked.append(tls is not None)
            handler = make()
            soon = partial(asyncio.get_running_loop().call_soon, handler.data_received)
            write = lambda _: soon(answer if tls else OK)  # noqa: E731
            handler.connection_made(SimpleNamespace(write=write, close=lambda: None))
            return handler

    way: Any = Scripts()
    web = WebClient(way, "https://a:1", credentials=Token("secret"), tls=None, timeout_s=5)
    with pytest.raises(ProtocolError, match="out of TLS"):
        await web.request("GET", "/admin/v2/tenants")
    assert asked == [True]


def test_ids_as_the_web_has_them() -> None:
    from anabranch.client.admin.documents import message_id_json, message_id_of

    one = MessageId(1, 2, 3, 4)
    assert message_id_of(message_id_json(one)) == one


@pytest.mark.goal("core.B23", part="admin", broken_by="peeked_batches_stay_whole")
async def test_messages_of_a_batch_are_looked_at_one_by_one(
    server: Standalone, admin: AdminClient
) -> None:
    await admin.topics.create(TOPIC)
    await admin.subscriptions.create(TOPIC, "s")
    async with Client(server.service_url) as client:
        producer = await client.producer(TOPIC)
        for key in ("a", "b"):
            await producer.send_soon(key.upper().encode(), key=key, properties={"p": key})
        await producer.flush()
    whole = await admin.subscriptions.peek(TOPIC, "s")
    assert whole.batch_messages == 2
    found = whole.messages()
    assert [(each.id, each.data, each.key, each.properties) for each in found] == [
        (f"{whole.id}:0", b"A", "a", {"p": "a"}),
        (f"{whole.id}:1", b"B", "b", {"p": "b"}),
    ]
    assert found[0].messages() == [found[0]], "a message by itself"
    sealed = replace(whole, is_encrypted=True)
    assert sealed.messages() == [sealed]
    with pytest.raises(ProtocolError):
        replace(whole, data=whole.data[:-1]).messages()
