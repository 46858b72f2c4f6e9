"""Every endpoint of the table with every kind of role; and what callers are asked to show."""

import json
from dataclasses import replace

import jwt
import pytest

from anabranch.admin.table import ENDPOINTS
from anabranch.runtime.real import real_runtime
from anabranch.security import Right
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

SECRET = b"a shared secret of more than 32 bytes"
NAMES = {
    "tenant": "t", "namespace": "n", "topic": "x", "subscription": "s", "domain": "persistent",
    "cluster": "c", "role": "r", "key": "k", "value": "v", "count": "1", "seconds": "1",
    "timestamp": "1", "position": "1", "ledger": "0", "entry": "0", "bundle": "0x0_0x1",
    "version": "0",
}  # fmt: skip
ROLES = ("root", "admin", "producer", "consumer", "stranger")
MAY = {
    Right.KNOWN: set(ROLES),
    Right.LOOK_UP: {"root", "admin", "producer", "consumer"},
    Right.LIST: {"root", "admin", "producer", "consumer"},
    Right.PRODUCE: {"root", "admin", "producer"},
    Right.CONSUME: {"root", "admin", "consumer"},
    Right.DRAIN: {"root", "admin", "consumer"},
    Right.ADMINISTER: {"root", "admin"},
    Right.SUPERUSER: {"root"},
}


def header(role):
    return {"Authorization": "Bearer " + jwt.encode({"sub": role}, SECRET, algorithm="HS256")}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    secret = tmp_path_factory.mktemp("keys") / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    return Settings(
        port=0,
        web_port=0,
        metadata_url="memory:",
        ledgers_url="memory:",
        authentication="token",
        token_secret_key=str(secret),
        superuser_roles="root, other-root",
        proxy_roles="proxy",
    )


@pytest.fixture
async def server(settings):
    server = Standalone(real_runtime(), settings, web_port=1234)
    await server.start()
    grants = {"producer": ["produce"], "consumer": ["consume"]}
    documents = {
        "tenants/t": {"adminRoles": ["admin"], "allowedClusters": ["standalone"]},
        "namespaces/t/n": {"auth_policies": {"namespace_auth": grants}},
    }
    for path, body in documents.items():
        made = await call(
            server.web_app,
            f"/admin/v2/{path}",
            method="PUT",
            body=json.dumps(body).encode(),
            headers=header("root"),
        )
        assert made.status == 204, made.body
    yield server
    await server.close()


def refused(answer):
    """Whether that is the refusal of a role, and not one of another kind."""
    return answer.status in (401, 403) and b"may not" in answer.body


@pytest.mark.goal("core.B18", part="endpoints", broken_by="endpoints_are_not_checked")
async def test_every_endpoint_with_every_role(server):
    # Reading first: what deletes the tenant itself comes last.
    rows = sorted(ENDPOINTS, key=lambda row: (row.method == "DELETE", -len(row.path)))
    for row in rows:
        path = row.path.format(**NAMES)
        if row.right is Right.ANYBODY:
            assert (await call(server.web_app, path)).status == 200, path
            continue
        nobody = await call(server.web_app, path, method=row.method)
        assert nobody.status == 401, (row.method, path)
        for role in ROLES:
            if role in MAY[row.right] and row.method == "DELETE":
                continue  # would take away what the next role is asked about
            answer = await call(server.web_app, path, method=row.method, headers=header(role))
            assert refused(answer) == (role not in MAY[row.right]), (row.method, path, role)


async def test_every_row_is_complete():
    for row in ENDPOINTS:
        assert row.words, row.path
        assert row.method in ("GET", "PUT", "POST", "DELETE")
    pairs = [(row.method, row.path) for row in ENDPOINTS]
    assert len(pairs) == len(set(pairs))


@pytest.mark.goal("core.B17", part="rest", broken_by="tokens_are_not_checked")
async def test_wrong_credentials_are_401_and_change_nothing(server):
    forged = jwt.encode({"sub": "root"}, b"x" * 40, algorithm="HS256")
    for shown in (f"Bearer {forged}", "Bearer rubbish", "Basic cm9vdDpwdw==", "root"):
        answer = await call(
            server.web_app,
            "/admin/v2/tenants/t",
            method="DELETE",
            headers={"Authorization": shown},
        )
        assert answer.status == 401
        assert forged.encode() not in answer.body
    assert (await call(server.web_app, "/admin/v2/tenants", headers=header("root"))).status == 200


async def test_a_proxy_needs_an_original_principal(server):
    through = {**header("proxy"), "X-Original-Principal": "root"}
    assert (await call(server.web_app, "/admin/v2/tenants", headers=through)).status == 200
    for wrong in (header("proxy"), {**header("producer"), "X-Original-Principal": "root"}):
        answer = await call(server.web_app, "/admin/v2/tenants", headers=wrong)
        assert answer.status == 403, answer.body


def test_a_superuser_may_not_be_a_proxy(settings):
    with pytest.raises(Exception, match="both name root"):
        Standalone(real_runtime(), replace(settings, proxy_roles="root"))
