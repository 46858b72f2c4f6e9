"""A walk through the admin REST of an assembled server: the codes and words a real Pulsar gave.

The expected answers were taken from Apache Pulsar 5.0.0-M1, asked the same questions.
"""

import json

import pytest

from anabranch.admin.table import ENDPOINTS
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
TENANT = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
NAMESPACE = "namespaces/t1/n1"
TOPICS = "persistent/t1/n1"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        answer = await call(server.web_app, f"/admin/v2/{path}", method=method, body=data)
        text = answer.body.decode()
        if not text or answer.headers.get("content-type") != "application/json":
            return answer.status, text or None
        value = json.loads(text)
        refused = isinstance(value, dict) and set(value) == {"reason"}
        return answer.status, value["reason"] if refused else value

    ask.server = server
    yield ask
    await server.close()


@pytest.fixture
async def in_namespace(ask):
    assert await ask("PUT", "tenants/t1", TENANT) == (204, None)
    assert await ask("PUT", NAMESPACE) == (204, None)
    return ask


@pytest.mark.goal("core.B16", part="tenants", broken_by="tenants_of_unknown_clusters")
async def test_tenants(ask):
    assert await ask("GET", "tenants") == (200, ["public"])
    assert await ask("PUT", "tenants/t1", TENANT) == (204, None)
    assert await ask("PUT", "tenants/t1", TENANT) == (409, "Tenant already exist")
    wrong = {**TENANT, "allowedClusters": []}
    assert await ask("PUT", "tenants/t2", wrong) == (412, "Clusters cannot be empty or blank")
    wrong = {**TENANT, "allowedClusters": ["nope"]}
    assert await ask("PUT", "tenants/t2", wrong) == (412, "Clusters do not exist")
    assert await ask("PUT", "tenants/a%20b", TENANT) == (412, "Tenant name is not valid")
    assert await ask("GET", "tenants/t1") == (200, TENANT)
    assert await ask("GET", "tenants/nope") == (404, "Tenant does not exist")
    assert await ask("POST", "tenants/nope", TENANT) == (404, "Tenant nope not found")
    changed = {**TENANT, "adminRoles": ["a", "b"]}
    assert await ask("POST", "tenants/t1", changed) == (204, None)
    assert await ask("GET", "tenants/t1") == (200, changed)
    assert await ask("PUT", NAMESPACE) == (204, None)
    assert await ask("DELETE", "tenants/t1") == (409, "The tenant still has active namespaces")
    assert await ask("DELETE", NAMESPACE) == (204, None)
    assert await ask("DELETE", "tenants/t1") == (204, None)
    assert await ask("DELETE", "tenants/t1") == (404, "Tenant doesn't exist")


@pytest.mark.goal("core.B16", part="clusters", broken_by="clusters_show_their_secrets")
async def test_clusters_and_brokers(ask):
    assert await ask("GET", "clusters") == (200, ["standalone"])
    status, data = await ask("GET", "clusters/standalone")
    assert status == 200
    assert data["brokerServiceUrl"] == ask.server.service_url
    assert await ask("GET", "clusters/nope") == (404, "Cluster does not exist")
    secret = {"serviceUrl": "http://x:8080", "authenticationParameters": "token:canary"}
    assert await ask("PUT", "clusters/c2", secret) == (200, None)
    assert await ask("PUT", "clusters/c2", secret) == (409, "Cluster already exists")
    status, data = await ask("GET", "clusters/c2")
    assert data["serviceUrl"] == "http://x:8080"
    assert "canary" not in json.dumps(data)
    assert await ask("POST", "clusters/c2", {"serviceUrl": "http://y:8080"}) == (200, None)
    assert await ask("DELETE", "clusters/c2") == (204, None)
    assert await ask("DELETE", "clusters/c2") == (404, "Cluster does not exist")
    assert await ask("DELETE", "clusters/standalone") == (412, "Cluster not empty")


@pytest.mark.goal("core.B16", part="brokers", broken_by="brokers_know_no_leader")
async def test_brokers(ask):
    assert await ask("GET", "brokers") == (200, ["127.0.0.1:1234"])
    assert await ask("GET", "brokers/standalone") == (200, ["127.0.0.1:1234"])
    _, leader = await ask("GET", "brokers/leaderBroker")
    assert leader == {"serviceUrl": "http://127.0.0.1:1234", "brokerId": "127.0.0.1:1234"}
    assert (await ask("GET", "brokers/configuration/runtime"))[1]["cluster"] == "standalone"
    assert await ask("GET", "brokers/configuration/values") == (200, {})


@pytest.mark.goal("core.B16", part="namespaces", broken_by="namespaces_are_created_twice")
async def test_namespaces(in_namespace):
    ask = in_namespace
    assert await ask("PUT", NAMESPACE) == (409, "Namespace already exists")
    assert await ask("GET", "namespaces/t1") == (200, ["t1/n1"])
    assert await ask("GET", "namespaces/nope") == (404, "Tenant not found")
    assert await ask("PUT", "namespaces/nope/n1") == (404, "Tenant does not exist")
    assert await ask("PUT", "namespaces/t1/a%20b") == (412, "Namespace name is not valid")
    assert await ask("PUT", "namespaces/t1/n2", {"bundles": {"numBundles": 2}}) == (204, None)
    _, policies = await ask("GET", "namespaces/t1/n2")
    boundaries = ["0x00000000", "0x80000000", "0xffffffff"]
    assert policies["bundles"] == {"boundaries": boundaries, "numBundles": 2}
    assert policies["replication_clusters"] == ["standalone"]
    assert await ask("GET", "namespaces/t1/nope") == (404, "Namespace does not exist")
    gone = "Namespace t1/nope does not exist."
    assert await ask("DELETE", "namespaces/t1/nope") == (404, gone)
    assert await ask("DELETE", "namespaces/t1/n2") == (204, None)
    assert (await ask("GET", f"{NAMESPACE}/bundles"))[1]["numBundles"] == 4
    assert await ask("PUT", f"{TOPICS}/x", {}) == (204, None)
    assert await ask("DELETE", NAMESPACE) == (409, "Cannot delete non empty namespace")


@pytest.mark.goal("core.B16", part="permissions", broken_by="grants_are_not_taken_back")
async def test_permissions(in_namespace):
    ask = in_namespace
    page = f"{NAMESPACE}/permissions"
    assert await ask("GET", page) == (200, {})
    assert await ask("POST", f"{page}/r1", ["produce", "consume"]) == (204, None)
    assert (await ask("POST", f"{page}/r1", ["bogus"]))[0] == 400
    assert await ask("GET", page) == (200, {"r1": ["produce", "consume"]})
    assert await ask("DELETE", f"{page}/r1") == (204, None)
    assert await ask("GET", page) == (200, {})
    assert await ask("POST", f"{page}/subscription/s1", ["r2"]) == (204, None)
    assert await ask("GET", f"{page}/subscription") == (200, {"s1": ["r2"]})
    assert await ask("DELETE", f"{page}/s1/r2") == (204, None)
    assert await ask("GET", f"{page}/subscription") == (200, {})
    assert await ask("POST", f"{TOPICS}/x/permissions/r9", ["produce"]) == (204, None)
    assert await ask("GET", f"{TOPICS}/x/permissions") == (200, {"r9": ["produce"]})
    assert await ask("DELETE", f"{TOPICS}/x/permissions/r9") == (204, None)
    assert await ask("GET", f"{TOPICS}/x/permissions") == (200, {})


RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


@pytest.mark.goal("core.B16", part="policies", broken_by="policies_are_not_stored")
@pytest.mark.parametrize(
    ("page", "method", "unset", "value"),
    [
        ("retention", "POST", None, {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}),
        ("messageTTL", "POST", None, 60),
        ("deduplication", "POST", None, True),
        ("dispatchRate", "POST", None, RATE),
        ("subscriptionDispatchRate", "POST", None, RATE),
        (
            "publishRate",
            "POST",
            None,
            {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
        ),
        ("autoSubscriptionCreation", "POST", None, {"allowAutoSubscriptionCreation": False}),
        ("maxProducersPerTopic", "POST", None, 3),
        ("maxTopicsPerNamespace", "POST", 0, 3),
        ("compactionThreshold", "PUT", None, 0),
        ("subscriptionTypesEnabled", "POST", [], ["Shared"]),
        ("properties", "PUT", {}, {"k": "v"}),
    ],
)
async def test_policies_are_set_read_and_cleared(in_namespace, page, method, unset, value):
    ask, path = in_namespace, f"{NAMESPACE}/{page}"
    assert await ask("GET", path) == (200, unset)
    assert await ask(method, path, value) == (204, None)
    assert await ask("GET", path) == (200, value)
    assert await ask("DELETE", path) == (204, None)
    assert await ask("GET", path) == (200, unset)


async def test_policies_that_contradict_themselves_change_nothing(in_namespace):
    ask = in_namespace
    half = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}
    assert (await ask("POST", f"{NAMESPACE}/retention", half))[0] == 400
    words = "Invalid value for message TTL, message TTL must >= 0"
    assert await ask("POST", f"{NAMESPACE}/messageTTL", -5) == (412, words)
    assert (await ask("POST", f"{NAMESPACE}/messageTTL", "x"))[0] == 400
    assert (await ask("POST", f"{NAMESPACE}/retention", [1]))[0] == 400
    assert await ask("GET", f"{NAMESPACE}/retention") == (200, None)
    assert await ask("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "FORWARD") == (204, None)
    assert (await ask("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "UPWARD"))[0] == 400
    assert await ask("GET", f"{NAMESPACE}/schemaCompatibilityStrategy") == (200, "FORWARD")
    quota = {"limitSize": 10, "limitTime": -1, "policy": "producer_exception"}
    assert await ask("POST", f"{NAMESPACE}/backlogQuota", quota) == (204, None)
    assert (await ask("GET", f"{NAMESPACE}/backlogQuotaMap"))[1] == {"destination_storage": quota}


@pytest.mark.goal("core.B16", part="topics", broken_by="partitions_may_become_fewer")
async def test_topics_and_partitions(in_namespace):
    ask = in_namespace
    assert await ask("GET", TOPICS) == (200, [])
    assert await ask("PUT", f"{TOPICS}/x", {}) == (204, None)
    assert await ask("PUT", f"{TOPICS}/x", {}) == (409, "This topic already exists")
    assert await ask("PUT", f"{TOPICS}/pt/partitions", 2) == (204, None)
    assert await ask("PUT", f"{TOPICS}/pt/partitions", 2) == (409, "This topic already exists")
    few = "Number of partitions should be more than 0"
    assert await ask("PUT", f"{TOPICS}/pz/partitions", 0) == (406, few)
    assert (await ask("PUT", f"{TOPICS}/pz/partitions", "q"))[0] == 400
    assert await ask("POST", f"{TOPICS}/pt/partitions", 3) == (204, None)
    fewer = "Desired partitions 2 can't be less than the current partitions 3."
    assert await ask("POST", f"{TOPICS}/pt/partitions", 2) == (422, fewer)
    metadata = {"partitions": 3, "deleted": False}
    assert await ask("GET", f"{TOPICS}/pt/partitions") == (200, metadata)
    assert await ask("GET", f"{TOPICS}/x/partitions") == (200, {"partitions": 0, "deleted": False})
    gone = "Topic persistent://t1/n1/nope not found"
    assert await ask("GET", f"{TOPICS}/nope/partitions") == (404, gone)
    names = [f"persistent://t1/n1/{n}" for n in (*(f"pt-partition-{i}" for i in range(3)), "x")]
    assert await ask("GET", TOPICS) == (200, names)
    assert await ask("GET", f"{NAMESPACE}/topics") == (200, names)
    assert await ask("GET", f"{TOPICS}/partitioned") == (200, ["persistent://t1/n1/pt"])
    assert await ask("PUT", f"{TOPICS}/x/properties", {"a": "b"}) == (204, None)
    assert await ask("GET", f"{TOPICS}/x/properties") == (200, {"a": "b"})
    assert await ask("DELETE", f"{TOPICS}/x/properties?key=a") == (204, None)
    assert await ask("GET", f"{TOPICS}/x/properties") == (200, {})
    assert (await ask("DELETE", f"{TOPICS}/pt"))[0] == 409
    assert await ask("DELETE", f"{TOPICS}/pt/partitions") == (204, None)
    assert (await ask("DELETE", f"{TOPICS}/pt/partitions"))[0] == 404
    assert await ask("DELETE", f"{TOPICS}/x") == (204, None)
    assert await ask("DELETE", f"{TOPICS}/x") == (404, "Topic persistent://t1/n1/x not found")
    assert await ask("GET", "persistent/t1/nope") == (404, "Namespace does not exist")
    assert await ask("PUT", "persistent/t1/nope/x", {}) == (404, "Namespace not found")


@pytest.mark.goal("core.B16", part="subscriptions", broken_by="subscriptions_are_created_twice")
async def test_subscriptions(in_namespace):
    ask, one = in_namespace, f"{TOPICS}/x/subscription"
    assert await ask("PUT", f"{TOPICS}/x", {}) == (204, None)
    assert await ask("PUT", f"{one}/s1") == (204, None)
    exists = "Subscription already exists for topic"
    assert await ask("PUT", f"{one}/s1") == (409, exists)
    assert await ask("PUT", f"{one}/s2", EARLIEST) == (204, None)
    assert await ask("GET", f"{TOPICS}/x/subscriptions") == (200, ["s1", "s2"])
    assert await ask("POST", f"{one}/s1/skip_all") == (204, None)
    gone = "Subscription nope not found for topic persistent://t1/n1/x"
    assert await ask("POST", f"{one}/nope/skip_all") == (404, gone)
    assert await ask("POST", f"{one}/s1/skip/1") == (204, None)
    assert (await ask("POST", f"{one}/s1/skip/x"))[0] == 404
    assert (await ask("POST", f"{one}/s1/expireMessages/10"))[0] == 409
    assert await ask("POST", f"{one}/nope/expireMessages/10") == (404, gone)
    assert await ask("POST", f"{one}/s1/resetcursor/0") == (204, None)
    assert await ask("POST", f"{one}/s1/resetcursor", EARLIEST) == (204, None)
    assert await ask("GET", f"{one}/s1/position/1") == (404, "Message not found")
    assert await ask("PUT", f"{one}/s1/properties", {"q": "r"}) == (204, None)
    assert await ask("GET", f"{one}/s1/properties") == (200, {"q": "r"})
    assert await ask("DELETE", f"{one}/s1") == (204, None)
    assert (await ask("DELETE", f"{one}/s1"))[0] == 404


AVRO = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.goal("core.B16", part="schemas", broken_by="schemas_are_forgotten")
async def test_schemas(in_namespace):
    ask, one = in_namespace, "schemas/t1/n1/sx"
    given = {"type": "AVRO", "schema": json.dumps(AVRO), "properties": {"p": "q"}}
    assert await ask("GET", f"{one}/schema") == (404, "Schema not found")
    assert await ask("POST", f"{one}/schema", given) == (200, {"version": {"version": 0}})
    status, found = await ask("GET", f"{one}/schema")
    assert status == 200
    assert {**found, "timestamp": 0} == {
        "version": 0,
        "type": "AVRO",
        "timestamp": 0,
        "data": given["schema"],
        "properties": {"p": "q"},
    }
    assert await ask("GET", f"{one}/schema/0") == (200, found)
    assert await ask("GET", f"{one}/schema/9") == (404, "Schema not found")
    assert await ask("GET", f"{one}/schemas") == (200, {"getSchemaResponses": [found]})
    assert await ask("POST", f"{one}/version", given) == (200, {"version": 0})
    other = {**AVRO, "fields": [{"name": "b", "type": "int"}]}
    other = {**given, "schema": json.dumps(other)}
    assert (await ask("POST", f"{one}/schema", other))[0] == 409
    assert await ask("POST", f"{one}/version", other) == (200, {"version": -1})
    status, answer = await ask("POST", f"{one}/compatibility", other)
    assert (status, answer["compatibility"]) == (202, False)
    assert (await ask("POST", f"{one}/schema", {}))[0] == 422
    assert (await ask("DELETE", f"{one}/schema"))[0] == 200


@pytest.mark.goal("core.B16", part="openapi", broken_by="openapi_lacks_methods")
async def test_openapi_has_every_endpoint(ask):
    answer = await call(ask.server.web_app, "/openapi.json")
    paths = json.loads(answer.body)["paths"]
    listed = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert listed == {(row.method, row.path) for row in ENDPOINTS}
    for path, methods in paths.items():
        for described in methods.values():
            assert all(f"{{{one['name']}}}" in path for one in described["parameters"])
