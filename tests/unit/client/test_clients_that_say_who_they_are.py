"""Tokens, passwords and certificates of clients; and topics that move to another cluster."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import jwt
import pytest
from served_client import TOPIC, served, served_with_web

from anabranch.client import Basic, BrokerRefused, Client, Tls, Token
from anabranch.client.service_addresses import parse_service_url
from anabranch.errors import ConfigError
from anabranch.ownership import BrokerAddress, Whereabouts
from anabranch.testing.certificates import Authority
from anabranch.wire import replies

SECRET = b"0123456789abcdef0123456789abcdef"


def token(expires_s: float | None = None) -> str:
    claims: dict[str, Any] = {"sub": "root"}
    if expires_s is not None:
        claims["exp"] = expires_s
    return jwt.encode(claims, SECRET, algorithm="HS256")


@pytest.fixture
def with_tokens(tmp_path: Path) -> dict[str, Any]:
    key = tmp_path / "secret"
    key.write_bytes(SECRET)
    return {
        "authentication": "token",
        "token_secret_key": str(key),
        "superuser_roles": "root",
    }


@pytest.mark.goal("core.B23", part="security", broken_by="sdk_shows_nothing")
async def test_a_client_is_known_by_its_token(with_tokens: dict[str, Any]) -> None:
    async with served(**with_tokens) as (server, stranger):
        with pytest.raises(BrokerRefused, match="AuthenticationError"):
            await stranger.producer(TOPIC)
        async with Client(server.service_url, credentials=Token(token())) as client:
            producer = await client.producer(TOPIC)
            assert (await producer.send(b"x")).entry_id == 0


@pytest.mark.goal("core.B23", part="security", broken_by="sdk_hears_no_challenge")
async def test_a_token_that_ends_is_shown_anew(with_tokens: dict[str, Any]) -> None:
    async with served(**with_tokens, authentication_refresh_s=0.2) as (server, unused):
        shown = []

        def supply() -> str:
            now_s = unused.runtime.clock.wall_ms() / 1000
            shown.append(token(now_s + (1 if not shown else 3600)))
            return shown[-1]

        async with Client(server.service_url, credentials=Token(supply)) as client:
            producer = await client.producer(TOPIC)
            async with asyncio.timeout(10):
                while len(shown) < 2:
                    await producer.send(b"x")
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)
            await producer.send(b"x")
            assert producer.attachments == 1, "the connection was not lost"
            assert len(shown) == 2


async def test_tls_with_a_certificate_and_follows_what_brokers_say(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "server")
    known = authority.sign("root", "client")
    async with served_with_web(
        tls_port=0, web_tls_port=0, tls_certificate=str(certificate), tls_key=str(key),
        tls_trust=str(authority.file), authentication="tls", superuser_roles="root",
    ) as server:  # fmt: skip
        url = server.service_url_tls
        assert url is not None
        tls = Tls(str(authority.file), *map(str, known))
        async with Client(url, tls=tls) as client:
            producer = await client.producer(TOPIC)
            assert (await producer.send(b"x")).entry_id == 0
            assert all(address.secure for address, _ in client.brokers.connections)
        async with Client(url, tls=Tls(str(authority.file))) as client:
            with pytest.raises(BrokerRefused, match="AuthenticationError"):
                await client.producer(TOPIC)
        async with Client(url) as client:
            with pytest.raises(ConfigError, match="not trusted"):
                await client.producer(TOPIC)


async def test_a_client_in_tls_goes_to_no_plain_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "server")
    async with served_with_web(
        tls_port=0, web_tls_port=0, tls_certificate=str(certificate), tls_key=str(key),
    ) as server:  # fmt: skip
        url = server.service_url_tls
        assert url is not None
        ownership = server._broker.ownership
        plain = Whereabouts(BrokerAddress("b", server.service_url), is_owner=True)

        async def locate(*_: Any, **__: Any) -> Whereabouts:
            return plain

        monkeypatch.setattr(ownership, "locate", locate)
        async with Client(url, tls=Tls(str(authority.file)), credentials=Token("secret")) as client:
            with pytest.raises(ConfigError, match="without TLS"):
                await client.producer(TOPIC)
            with pytest.raises(ConfigError, match="without TLS"):
                await client.brokers.at(server.service_url)
            assert all(address.secure for address, _ in client.brokers.connections)


@pytest.mark.goal("core.B23", part="security", broken_by="sdk_stays_in_the_old_cluster")
async def test_a_topic_that_moved_to_another_cluster_is_found_there() -> None:
    async with served() as (green, other), served() as (blue, client):
        arrived = await other.consumer(TOPIC, "s")
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s")
        await producer.send(b"1")
        await consumer.acknowledge(await consumer.receive(), wait=True)
        await arrived.close()
        (session,) = [each for each in blue._broker.sessions if each.producers]
        (producer_id,), (consumer_id,) = session.producers, session.consumers
        url = green.service_url
        session.reply(replies.topic_migrated_producer(producer_id, url))
        session.reply(replies.topic_migrated_consumer(consumer_id, url))
        await asyncio.sleep(0.05)
        assert producer.attachments == 1, "told where to, and not yet closed"
        session.reply(replies.close_producer(producer_id))
        session.reply(replies.close_consumer(consumer_id))
        await producer.send(b"2")
        assert (await consumer.receive()).value == b"2"
        (topic,) = green._broker.topics.all()
        assert [each.name for each in topic.subscriptions["s"].consumers] == [consumer.name]


def test_what_is_shown_is_what_servers_read() -> None:
    assert (Token(" abc\n").data(), Token(lambda: "x").header()) == (b"abc", "Bearer x")
    basic = Basic("root", "s:cret")
    assert basic.data() == b"root:s:cret"
    assert base64.b64decode(basic.header().removeprefix("Basic ")) == b"root:s:cret"
    assert "cret" not in repr(basic)
    assert "abc" not in repr(Token("abc"))
    with pytest.raises(ConfigError):
        Token("")
    with pytest.raises(ConfigError):
        Basic("a:b", "c")


def test_addresses() -> None:
    assert parse_service_url("pulsar+ssl://a") == ("a", 6651, True)
    assert parse_service_url("pulsar://[::1]:7") == ("::1", 7, False)
    with pytest.raises(ConfigError, match=r"pulsar\+ssl"):
        parse_service_url("http://a")
