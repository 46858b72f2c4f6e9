"""What Pulsar has and this broker does not: shown as never set, refused when it is to be set.

Codes and words were read in the sources of Apache Pulsar 4.0.8.
"""

import json

import pytest

from anabranch.policies.paths import local_policies_path
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
NAMESPACE, TOPIC = "namespaces/public/default", "persistent/public/default/x"
CLUSTER = "clusters/standalone"
OFF = "This Broker is not configured with transactionCoordinatorEnabled=true."
REFUSED = {
    f"PUT {TOPIC}/compaction": "compaction",
    f"PUT {TOPIC}/offload": "offloading",
    f"PUT {NAMESPACE}/offloadThreshold": "offloading",
    f"PUT {NAMESPACE}/offloadDeletionLagMs": "offloading",
    f"POST {NAMESPACE}/offloadPolicies": "offloading",
    f"POST {TOPIC}/offloadPolicies": "offloading",
    f"POST {NAMESPACE}/entryFilters": "filtering of entries",
    f"POST {TOPIC}/entryFilters": "filtering of entries",
    f"POST {NAMESPACE}/antiAffinity": "placing namespaces apart",
    f"POST {NAMESPACE}/persistence/bookieAffinity": "placing namespaces on some bookies",
    f"POST {NAMESPACE}/dispatcherPauseOnAckStatePersistent": "pausing for acknowledgements",
    f"POST {NAMESPACE}/migration": "moving a namespace to another cluster",
    f"PUT {TOPIC}/shadowTopics": "shadowing of topics",
    f"POST {TOPIC}/subscription/s/replicatedSubscriptionStatus": "replication of subscriptions",
    f"POST {CLUSTER}/peers": "naming clusters with the same data",
    f"POST {CLUSTER}/migrate": "moving a cluster",
    f"POST {CLUSTER}/failureDomains/d": "naming brokers that fail together",
    f"POST {CLUSTER}/namespaceIsolationPolicies/p": "keeping namespaces on some brokers",
    "POST brokers/shutdown": "stopping a broker from afar",
    "PUT resourcegroups/g": "sharing by groups",
    "POST resource-quotas": "weighing of bundles",
}
SHOWN = {
    f"{TOPIC}/compaction": {"status": "NOT_RUN", "lastError": ""},
    f"{NAMESPACE}/offloadThreshold": -1,
    f"{NAMESPACE}/offloadPolicies": None,
    f"{NAMESPACE}/entryFilters": None,
    f"{NAMESPACE}/resourcegroup": None,
    f"{NAMESPACE}/antiAffinity": None,
    f"{NAMESPACE}/dispatcherPauseOnAckStatePersistent": False,
    f"{NAMESPACE}/allowedClusters": [],
    "namespaces/standalone/antiAffinity/g?tenant=public": [],
    f"{TOPIC}/shadowTopics": [],
    f"{TOPIC}/replication": None,
    f"{TOPIC}/replication?applied=true": ["standalone"],
    f"{TOPIC}/subscription/s/replicatedSubscriptionStatus": {
        "persistent://public/default/x": False
    },
    f"{CLUSTER}/failureDomains": {},
    "broker-stats/mbeans": [],
    "resourcegroups": [],
}
MISSING = {
    f"GET {CLUSTER}/migrate": (404, "Cluster does not exist"),
    f"GET {CLUSTER}/failureDomains/d": (404, "Domain d for cluster standalone does not exist"),
    f"GET {CLUSTER}/namespaceIsolationPolicies/p": (
        404,
        "NamespaceIsolationPolicies for cluster standalone does not exist",
    ),
    "GET clusters/none/failureDomains/d": (412, "Cluster does not exist"),
    "POST brokers/configuration/k/v": (412, "Can't update non-dynamic configuration"),
    "DELETE brokers/configuration/k": (412, "Can't delete non-dynamic configuration"),
    f"POST {NAMESPACE}/resourcegroup/g": (412, "ResourceGroup does not exist"),
    "GET resourcegroups/g": (404, "ResourceGroup does not exist"),
    "GET namespaces/none/antiAffinity/g?tenant=public": (412, "Cluster does not exist"),
    "POST namespaces/public/none/entryFilters": (404, "Namespace does not exist"),
    "PUT persistent/public/default/none/shadowTopics": (
        404,
        "Topic persistent://public/default/none not found",
    ),
}
TRANSACTIONS = (
    "GET coordinators",
    "GET coordinatorStats?coordinatorId=0",
    "GET transactionMetadata/0/1",
    "GET slowTransactions/1000",
    "GET pendingAckStats/public/default/x/s",
    "POST abortTransaction/0/1",
    "POST transactionCoordinator/replicas",
)


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(asked, body=None, root="/admin/v2"):
        method, path = asked.split(" ")
        data = b"" if body is None else json.dumps(body).encode()
        answer = await call(server.web_app, f"{root}/{path}", method=method, body=data)
        value = json.loads(answer.body) if answer.body else None
        refused = isinstance(value, dict) and set(value) == {"reason"}
        return answer.status, value["reason"] if refused else value

    assert await ask(f"PUT {TOPIC}", {}) == (204, None)
    assert await ask(f"PUT {TOPIC}/subscription/s") == (204, None)
    ask.server = server
    yield ask
    await server.close()


@pytest.mark.goal("core.B16", part="not served", broken_by="what_is_missing_is_answered_as_done")
async def test_what_cannot_be_had_is_refused_and_not_stored(ask):
    before = await ask(f"GET {NAMESPACE}")
    for asked, what in REFUSED.items():
        refusal = (405, f"{what} is not supported by this broker")
        assert await ask(asked, True) == refusal, asked
    assert await ask(f"GET {NAMESPACE}") == before


async def test_what_is_never_set_is_shown_so_and_may_be_taken_back(ask):
    for page, value in SHOWN.items():
        assert await ask(f"GET {page}") == (200, value), page
    for page in (
        *(f"{NAMESPACE}/{page}" for page in ("offloadDeletionLagMs", "removeOffloadPolicies")),
        *(f"{NAMESPACE}/{page}" for page in ("resourcegroup", "entryFilters", "antiAffinity")),
        *(f"{NAMESPACE}/persistence/bookieAffinity", f"{TOPIC}/entryFilters"),
        *(f"{TOPIC}/{page}" for page in ("shadowTopics", "offloadPolicies", "replication")),
    ):
        assert await ask(f"DELETE {page}") == (204, None), page


async def test_tools_of_pulsar_4_ask_by_the_older_path(ask):
    page = "GET namespaces/standalone/antiAffinity/g?property=public"
    assert await ask(page, root="/admin") == (200, [])
    apart = json.dumps({"namespaceAntiAffinityGroup": "g"}).encode()
    await ask.server.metadata.put(local_policies_path("public/default"), apart)
    assert await ask(page, root="/admin") == (200, ["public/default"])


async def test_what_is_not_there_is_said_in_pulsars_words(ask):
    for asked, refusal in MISSING.items():
        assert await ask(asked, {}) == refusal, asked


async def test_nothing_is_compacted_after_some_bytes(ask):
    for asked in (f"PUT {NAMESPACE}/compactionThreshold", f"POST {TOPIC}/compactionThreshold"):
        page = f"GET {asked.split()[1]}"
        before = await ask(page)
        refusal = (405, "compaction is not supported by this broker")
        assert await ask(asked, 1) == refusal
        assert (await ask(asked, -1))[0] == 412
        assert await ask(page) == before
        assert await ask(asked, 0) == (204, None), "0 is never"
        assert await ask(page) == (200, 0)


@pytest.mark.parametrize("asked", TRANSACTIONS)
async def test_transactions_are_turned_off(ask, asked):
    assert await ask(asked, root="/admin/v3/transactions") == (503, OFF)


async def test_what_others_have_set_is_shown_and_taken_back(ask):
    """On metadata that are shared with a Pulsar, which has these features."""
    path = "/admin/policies/public/default"
    node = await ask.server.metadata.get(path)
    policies = json.loads(node.value) | {"entryFilters": {"entryFilterNames": "f"}}
    await ask.server.metadata.put(path, json.dumps(policies).encode())
    assert await ask(f"GET {NAMESPACE}/entryFilters") == (200, {"entryFilterNames": "f"})
    assert await ask(f"DELETE {NAMESPACE}/entryFilters") == (204, None)
    assert await ask(f"GET {NAMESPACE}/entryFilters") == (200, None)


@pytest.mark.goal("core.B16", part="replication", broken_by="clusters_are_named_as_one_likes")
async def test_replication_goes_nowhere_else(ask):
    own = ["standalone"]
    assert await ask("PUT clusters/c2", {"serviceUrl": "http://x:8080"}) == (200, None)
    refusal = (405, "replication between clusters is not supported by this broker")
    for page in (f"POST {NAMESPACE}/replication", f"POST {TOPIC}/replication"):
        assert await ask(page, ["standalone", "c2"]) == refusal
        assert await ask(page, ["nowhere"]) == (403, "Invalid cluster id: nowhere")
        assert (await ask(page, []))[0] == 412
        assert (await ask(page, own))[0] in (200, 204)
    assert await ask(f"GET {TOPIC}/replication") == (200, own)
    assert await ask(f"DELETE {TOPIC}/replication") == (204, None)
    assert await ask(f"GET {TOPIC}/replication") == (200, None)
    assert await ask(f"POST {NAMESPACE}/allowedClusters", own) == (204, None)
    assert await ask(f"GET {NAMESPACE}/allowedClusters") == (200, own)
    status, words = await ask(f"POST {NAMESPACE}/allowedClusters", ["c2"])
    assert (status, "is not in the list of allowed clusters" in words) == (403, True)
    tenant = {"adminRoles": [], "allowedClusters": ["standalone", "c2"]}
    assert await ask("POST tenants/public", tenant) == (204, None)
    status, words = await ask(f"POST {NAMESPACE}/allowedClusters", ["c2"])
    assert (status, "do not contain the replication cluster" in words) == (400, True)
    assert (await ask(f"POST {NAMESPACE}/allowedClusters", ["global"]))[0] == 412


async def test_a_shadow_of_a_topic_is_not_made(ask):
    wanted = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/x"}
    refusal = (405, "shadowing of topics is not supported by this broker")
    assert await ask("PUT persistent/public/default/shadow", wanted) == refusal
    parts = {"partitions": 2, "properties": wanted}
    assert await ask("PUT persistent/public/default/shadow/partitions", parts) == refusal
    assert await ask("GET persistent/public/default") == (200, ["persistent://public/default/x"])


@pytest.mark.goal("core.B16", part="topic policies", broken_by="policies_of_topics_stay_for_good")
async def test_all_policies_of_a_topic_are_taken_back_at_once(ask):
    assert await ask(f"POST {TOPIC}/maxProducers", 5) == (204, None)
    assert await ask(f"DELETE {TOPIC}/policies") == (204, None)
    assert await ask(f"GET {TOPIC}/maxProducers") == (200, None)
    assert (await ask("DELETE persistent/public/default/none/policies"))[0] == 404
