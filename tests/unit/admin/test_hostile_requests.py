"""Requests that mean no good: names that hide others, bodies that are none, secrets that leak."""

import json
import random
from dataclasses import replace
from urllib.parse import quote

import jwt
import pytest

from anabranch.admin.table import ENDPOINTS
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
SECRET = b"canary-secret-of-more-than-32-bytes"
HOSTILE = [
    "%2e%2e", "%252e%252e", "a%252Fb", "%2e%2e%2fetc", "a%2f%2e%2e%2fb", "a%00b", "a%0ab", "%20a",
    "a%20", "%ff", "%zz", "%", "a%2f", "%2fa", "a" * 2000,
]  # fmt: skip


@pytest.fixture
async def server():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()
    yield server
    await server.close()


def names_of(domain, topic, number):
    """What stands for each name in the paths of the table."""
    return {
        "tenant": "public", "namespace": "default", "topic": topic, "subscription": "s",
        "domain": domain, "cluster": "standalone", "role": "r", "key": "k", "value": "v",
        "bundle": "0x00000000_0x40000000", "count": number, "seconds": number,
        "timestamp": number, "position": number, "ledger": number, "entry": number,
        "version": number, "broker": "127.0.0.1:1234", "name": number, "group": number,
        "mostBits": number, "leastBits": number, "coordinator": number, "timeout": number,
    }  # fmt: skip


def is_off(row, answer):
    """Whether that is how transactions are refused, which Pulsar does with 503."""
    return row.path.startswith("/admin/v3/transactions") and answer.status == 503


@pytest.mark.goal("core.S6", part="rest", broken_by="names_may_be_disguised")
@pytest.mark.goal("core.S6", part="double-encoded", broken_by="paths_are_decoded_twice")
async def test_names_that_hide_others_are_refused_everywhere(server):
    tenant = {"adminRoles": [], "allowedClusters": ["standalone"]}
    for name in HOSTILE:
        for method, path, body in (
            ("PUT", f"tenants/{name}", tenant),
            ("PUT", f"namespaces/public/{name}", None),
            ("PUT", f"persistent/public/default/{name}", {}),
            ("PUT", f"persistent/public/default/{name}/partitions", 2),
            ("PUT", f"persistent/public/default/x/subscription/{name}", None),
            ("PUT", f"clusters/{name}", {}),
        ):
            if path.endswith(f"subscription/{name}") and "2f" in name:
                continue  # slashes are odd in a subscription's name, and harmless
            data = b"" if body is None else json.dumps(body).encode()
            answer = await call(server.web_app, f"/admin/v2/{path}", method=method, body=data)
            assert answer.status in (400, 412), (method, path, answer.status)
            assert json.loads(answer.body)["reason"]
    assert await server.metadata.children("/admin/policies") == ["public"]
    assert await server.metadata.children("/admin/policies/public") == ["default"]
    assert await server.metadata.children("/admin/clusters") == ["standalone"]
    assert not await server.metadata.children("/managed-ledgers/public/default/persistent")


@pytest.mark.goal("core.S3", part="rest", broken_by="bodies_are_believed")
async def test_any_body_at_any_endpoint_gets_an_answer(server):
    deep: object = []
    for _ in range(40):
        deep = [deep]
    bodies = [
        b"", b"{", b"null", b"[]", b"{}", b"-1", b"1e999", b'"x"', b"\xff\xfe", b"[" * 100_000,
        json.dumps(deep).encode(), b'{"a":1,"a":2}', b'{"type":[],"schema":{}}',
        b'{"ledgerId":"x"}', b'{"partitions":true}', b"[null]", b'{"policy":7}',
        b'{"a":"\\ud800"}', b'{"\\ud800":"a"}', b'["\xed\xa0\x80"]',
    ]  # fmt: skip
    dice = random.Random(7)
    for row in ENDPOINTS:
        if row.method in ("GET", "DELETE"):
            continue
        path = row.path.format(**names_of("persistent", "x", "1"))
        for body in (*bodies, bytes(dice.randrange(256) for _ in range(50))):
            answer = await call(server.web_app, path, method=row.method, body=body)
            found = (row.method, row.path, body[:40], answer.body)
            assert answer.status < 500 or is_off(row, answer), found
    assert (await call(server.web_app, "/admin/v2/brokers/health")).body == b"ok"


ODD_NUMBERS = ["0", "-1", "9" * 18, "9" * 40, "x", "1.5", "%2B1"]
ODD_QUERIES = [
    "", "applied=true", "force=true", "isGlobal=true", "authoritative=true", "key=", "mode=x",
    "backlogQuotaType=x", "messageTTL=99999999999", "messagePosition=-1", "initialPosition=x",
    "destinationBroker=nobody", "perPartition=x", "checkAllowAutoCreation=true",
]  # fmt: skip


@pytest.mark.goal("core.S3", part="rest", broken_by="numbers_are_believed")
async def test_odd_numbers_and_queries_at_any_endpoint_get_an_answer(server):
    """With a topic that is stored, one that is not, one with partitions, and one that is none."""
    made = [
        ("persistent/public/default/x", b"{}"),
        ("persistent/public/default/p/partitions", b"2"),
        ("persistent/public/default/x/subscription/s", b""),
        ("non-persistent/public/default/n/subscription/s", b""),
    ]
    kinds = [
        ("persistent", "x"),
        ("persistent", "p"),
        ("non-persistent", "n"),
        ("persistent", "o"),
    ]
    dice = random.Random(13)
    rows = sorted(ENDPOINTS, key=lambda row: (row.method == "DELETE", row.path))
    for row in rows:
        for path, body in made:
            await call(server.web_app, f"/admin/v2/{path}", method="PUT", body=body)
        for domain, topic in kinds if "{topic}" in row.path else kinds[:1]:
            number = dice.choice(ODD_NUMBERS)
            path = (
                f"{row.path.format(**names_of(domain, topic, number))}?{dice.choice(ODD_QUERIES)}"
            )
            answer = await call(server.web_app, path, method=row.method, body=b"1")
            found = (row.method, path, answer.body)
            assert answer.status < 500 or is_off(row, answer), found
    assert (await call(server.web_app, "/admin/v2/brokers/health")).body == b"ok"


async def test_random_paths_get_an_answer(server):
    dice = random.Random(11)
    pieces = [
        *(row.path for row in ENDPOINTS[:20]), "..", "%2e", "%", "//", "\\", "?", "\x7f", "ü", "0",
    ]  # fmt: skip
    for _ in range(400):
        path = "/" + "/".join(dice.choice(pieces) for _ in range(dice.randrange(1, 7)))
        method = dice.choice(["GET", "PUT", "POST", "PATCH", "HEAD"])
        answer = await call(server.web_app, quote(path, safe="/%?{}"), method=method)
        assert answer.status < 500, (method, path)


async def test_bodies_are_bounded(server):
    answer = await call(
        server.web_app, "/admin/v2/tenants/t", method="PUT", body=b" " * (2 * 1024 * 1024)
    )
    assert answer.status == 413


@pytest.mark.goal("core.S5", part="rest", broken_by="settings_are_shown_as_they_are")
async def test_secrets_are_nowhere_to_be_seen(tmp_path, caplog):
    key = tmp_path / "key"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    settings = replace(
        IN_MEMORY,
        authentication="token",
        token_secret_key=str(key),
        superuser_roles="root",
    )
    server = Standalone(real_runtime(), settings, web_port=1)
    await server.start()
    shown = jwt.encode({"sub": "root"}, SECRET, algorithm="HS256")
    forged = jwt.encode({"sub": "root"}, b"canary" * 8, algorithm="HS256")
    seen = []
    try:
        for token in (shown, forged, "canary-token"):
            header = {"Authorization": f"Bearer {token}"}
            for row in ENDPOINTS:
                path, body = row.path.format(**names_of("persistent", "x", "1")), b""
                if row.method != "GET":
                    body = json.dumps({"target": "zk:user:canary-password@127.0.0.1:1"}).encode()
                answer = await call(
                    server.web_app, path, method=row.method, body=body, headers=header
                )
                seen.append(answer.body.decode(errors="replace"))
    finally:
        await server.close()
    text = "".join(seen) + caplog.text
    for secret in (SECRET.decode(), shown, forged, "canary-token", shown.rpartition(".")[2]):
        assert secret not in text
    assert "canary-password" not in text
    url = "zk:user:canary@here:2181/root"
    server = Standalone(real_runtime(), replace(settings, metadata_url=url, ledgers_url=url))
    assert "canary" not in json.dumps(server.configuration())
    assert "here:2181/root" in server.configuration()["metadata_url"]
