"""TLS on both ports of a server: who is believed, what is refused, and renewed certificates."""

import asyncio
import json
import ssl
from dataclasses import replace

import pytest

from anabranch.errors import ConfigError
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets
from anabranch.testing.certificates import Authority
from anabranch.wire import Decoder, encode, requests


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
async def server(authority):
    certificate, key = authority.sign("server", "server")
    settings = Settings(
        port=0,
        web_port=0,
        tls_port=0,
        web_tls_port=0,
        metadata_url="memory:",
        ledgers_url="memory:",
        tls_certificate=str(certificate),
        tls_key=str(key),
        tls_trust=str(authority.file),
        tls_reload_s=0.1,
        authentication="tls",
        superuser_roles="root",
    )
    runtime = real_runtime()
    with web_sockets(settings) as web:
        server = Standalone(runtime, settings, web_port=web.port, web_tls_port=web.tls_port)
        await server.start()
        async with web_servers(server, web, runtime.network):
            yield server
        await server.close()


def trusting(authority, client=None):
    context = ssl.create_default_context(cafile=authority.file)
    if client is not None:
        context.load_cert_chain(*client)
    return context


async def reach(url, context):
    port = int(url.rpartition(":")[2])
    async with asyncio.timeout(20):
        return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def first_answer(server, context):
    reader, writer = await reach(server.service_url_tls, context)
    try:
        writer.write(encode(requests.connect("test", auth_method="tls")))
        decoder, commands = Decoder(), []
        while not commands:
            data = await asyncio.wait_for(reader.read(4096), 20)
            assert data, "closed without a word"
            commands = decoder.feed(data)
        return commands[0].type
    finally:
        writer.close()


async def tenants_over_tls(server, context):
    reader, writer = await reach(server.web_url_tls, context)
    try:
        writer.write(b"GET /admin/v2/tenants HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.goal("core.B19", part="wire", broken_by="tls_ports_speak_plainly")
@pytest.mark.goal("core.B17", part="mtls", broken_by="certificates_are_not_looked_at")
async def test_the_wire_in_tls_knows_clients_by_their_certificates(server, authority):
    client = authority.sign("alice", "client")
    assert server.service_url_tls.startswith("pulsar+ssl://127.0.0.1:")
    assert await first_answer(server, trusting(authority, client)) == BaseCommand.CONNECTED
    assert await first_answer(server, trusting(authority)) == BaseCommand.ERROR


@pytest.mark.goal("core.B19", part="web", broken_by="web_forgets_certificates")
async def test_the_web_in_tls_knows_callers_by_their_certificates(server, authority):
    root = trusting(authority, authority.sign("root", "client"))
    assert await tenants_over_tls(server, root) == (200, ["public"])
    status, answer = await tenants_over_tls(server, trusting(authority))
    assert (status, answer["reason"]) == (401, "no credentials were given")
    other = trusting(authority, authority.sign("alice", "other"))
    assert (await tenants_over_tls(server, other))[0] == 401


@pytest.mark.goal("core.B19", part="without plain ports", broken_by="plain_ports_stay_open")
async def test_plain_ports_can_be_turned_off(server, authority):
    settings = replace(server._settings, plain_ports=False, port=1, web_port=1)
    runtime = real_runtime()
    with web_sockets(settings) as web:
        assert web.plain is None
        sealed = Standalone(runtime, settings, web_port=web.port, web_tls_port=web.tls_port)
        await sealed.start()
        try:
            async with web_servers(sealed, web, runtime.network):
                assert (sealed.service_url, sealed.web_url) == ("", "")
                assert sealed.reachable_url.startswith("pulsar+ssl://")
                client = trusting(authority, authority.sign("root", "client"))
                assert await first_answer(sealed, client) == BaseCommand.CONNECTED
                assert (await tenants_over_tls(sealed, client))[0] == 200
        finally:
            await sealed.close()
    with pytest.raises(ConfigError, match="no-plain-ports"):
        Standalone(runtime, Settings(plain_ports=False))


@pytest.mark.goal("core.B19", part="wire", broken_by="tls_believes_any_authority")
async def test_certificates_of_other_authorities_are_refused(server, authority, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    stranger = Authority(tmp_path / "elsewhere", "somebody else").sign("root", "client")
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        await first_answer(server, trusting(authority, stranger))
    with pytest.raises(ssl.SSLCertVerificationError):
        await reach(server.service_url_tls, ssl.create_default_context())


async def serial_of(url, authority):
    _, writer = await reach(url, trusting(authority))
    try:
        return writer.get_extra_info("peercert")["serialNumber"]
    finally:
        writer.close()


@pytest.mark.goal("core.B19", part="reload", broken_by="certificates_are_loaded_once")
async def test_renewed_certificates_are_used_without_a_restart(server, authority, tmp_path):
    before = await serial_of(server.service_url_tls, authority)
    (tmp_path / "server.pem").write_bytes(b"half a certificate")
    await asyncio.sleep(0.3)
    assert await serial_of(server.service_url_tls, authority) == before
    authority.sign("server", "server")
    async with asyncio.timeout(20):
        while await serial_of(server.service_url_tls, authority) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    wire = await serial_of(server.service_url_tls, authority)
    assert await serial_of(server.web_url_tls, authority) == wire


def test_settings_that_do_not_go_together(tmp_path):
    settings = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
    for changes, words in (
        ({"tls_certificate": "c"}, "go together"),
        ({"authentication": "tls"}, "--tls-trust"),
        ({"authentication": "token"}, "--token-secret-key"),
        ({"authentication": "basic"}, "--basic-users"),
        ({"superuser_roles": "root"}, "no effect without --authentication"),
        ({"tls_require_client_certificate": True}, "--tls-trust"),
    ):
        with pytest.raises(ConfigError, match=words):
            Standalone(real_runtime(), replace(settings, **changes))
