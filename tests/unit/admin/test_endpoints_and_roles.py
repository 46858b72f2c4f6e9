"""Every endpoint of the table with every kind of role; and what callers are asked to show."""

import json
import re
import time
from dataclasses import replace

import jwt
import pytest

from anabranch.admin.table import ENDPOINTS
from anabranch.errors import ConfigError
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
    "version": "0", "broker": "127.0.0.1:1234", "name": "n", "group": "g", "mostBits": "0",
    "leastBits": "1", "coordinator": "0", "timeout": "1",
}  # fmt: skip
ROLES = ("root", "admin", "producer", "consumer", "stranger", "foreigner")
"""The last administers another tenant, and may publish and subscribe there."""
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

OF_THE_WHOLE_CLUSTER = re.compile(
    r"/admin/v2/(brokers|broker-stats|clusters|tenants|resource-quotas|resourcegroups|metadata"
    r"|anabranch)(/|$)"
)
FOR_LESS = {
    ("GET", "/admin/v2/brokers/health"): Right.ANYBODY,
    ("GET", "/admin/v2/brokers/ready"): Right.ANYBODY,
    ("GET", "/admin/v2/brokers/version"): Right.ANYBODY,
    ("GET", "/admin/v2/clusters"): Right.KNOWN,
    ("GET", "/admin/v2/tenants/{tenant}"): Right.ADMINISTER,
}
"""Of what concerns more than one tenant, what others than superusers may ask."""
HARMLESS = {
    ("PUT", "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/backlogSize"),
    ("POST", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/compatibility"),
    ("POST", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/version"),
    ("POST", "/admin/v3/transactions/transactionCoordinator/replicas"),
    ("POST", "/admin/v3/transactions/abortTransaction/{mostBits}/{leastBits}"),
}
"""What changes nothing although its method is one of those that do."""


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
    elsewhere = {"foreigner": ["produce", "consume"]}
    documents = {
        "tenants/t": {"adminRoles": ["admin"], "allowedClusters": ["standalone"]},
        "namespaces/t/n": {"auth_policies": {"namespace_auth": grants}},
        "tenants/u": {"adminRoles": ["foreigner"], "allowedClusters": ["standalone"]},
        "namespaces/u/n": {"auth_policies": {"namespace_auth": elsewhere}},
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
@pytest.mark.goal("core.B18", part="endpoints", broken_by="tenants_are_not_told_apart")
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


@pytest.mark.goal("core.B18", part="endpoints", broken_by="proxies_are_enough")
async def test_every_endpoint_through_a_proxy(server):
    """A proxy that administers the tenant adds nothing to whom it asks for, and is no superuser."""
    tenant = {"adminRoles": ["admin", "proxy"], "allowedClusters": ["standalone"]}
    body = json.dumps(tenant).encode()
    changed = await call(
        server.web_app, "/admin/v2/tenants/t", method="POST", body=body, headers=header("root")
    )
    assert changed.status == 204, changed.body
    for row in ENDPOINTS:
        if row.right is Right.ANYBODY:
            continue
        path = row.path.format(**NAMES)
        may = MAY[row.right] if row.right is not Right.SUPERUSER else set()
        for role in ROLES:
            if role in may and row.method == "DELETE":
                continue  # would take away what the next role is asked about
            shown = {**header("proxy"), "X-Original-Principal": role}
            answer = await call(server.web_app, path, method=row.method, headers=shown)
            assert refused(answer) == (role not in may), (row.method, path, role)


def test_what_concerns_the_whole_cluster_is_for_superusers():
    found = {
        (row.method, row.path): row.right
        for row in ENDPOINTS
        if OF_THE_WHOLE_CLUSTER.match(row.path) and row.right is not Right.SUPERUSER
    }
    assert found == FOR_LESS


def test_what_changes_something_needs_a_right_to_change():
    to_look = (Right.ANYBODY, Right.KNOWN, Right.LOOK_UP, Right.LIST)
    found = {
        (row.method, row.path) for row in ENDPOINTS if row.method != "GET" and row.right in to_look
    }
    assert found == HARMLESS


async def test_every_row_is_complete():
    for row in ENDPOINTS:
        assert row.words, row.path
        assert row.method in ("GET", "PUT", "POST", "DELETE")
    pairs = [(row.method, row.path) for row in ENDPOINTS]
    assert len(pairs) == len(set(pairs))


@pytest.mark.goal("core.B17", part="rest", broken_by="tokens_are_not_checked")
async def test_wrong_credentials_are_401_and_change_nothing(server):
    forged = jwt.encode({"sub": "root"}, b"x" * 40, algorithm="HS256")
    over = jwt.encode({"sub": "root", "exp": time.time() - 60}, SECRET, algorithm="HS256")
    wrong = (f"Bearer {forged}", f"Bearer {over}", "Bearer rubbish", "Basic cm9vdDpwdw==", "root")
    for shown in wrong:
        answer = await call(
            server.web_app,
            "/admin/v2/tenants/t",
            method="DELETE",
            headers={"Authorization": shown},
        )
        assert answer.status == 401
        assert not any(token.encode() in answer.body for token in (forged, over))
    assert (await call(server.web_app, "/admin/v2/tenants", headers=header("root"))).status == 200


async def test_a_proxy_needs_an_original_principal(server):
    for wrong, status in (
        (header("proxy"), 403),
        ({**header("producer"), "X-Original-Principal": "root"}, 403),
        ({**header("proxy"), "X-Original-Principal": "producer"}, 401),
        ({**header("proxy"), "X-Original-Principal": "root"}, 401),
    ):
        answer = await call(server.web_app, "/admin/v2/tenants", headers=wrong)
        assert answer.status == status, answer.body


def test_a_superuser_may_not_be_a_proxy(settings):
    with pytest.raises(ConfigError, match="both name root"):
        Standalone(real_runtime(), replace(settings, proxy_roles="root"))
