"""Policies that contradict themselves, or that Pulsar could not read, are refused."""

import json

import pytest

from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
SPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/x"
WIDE = 2**31


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        return await call(server.web_app, path, method=method, body=data)

    yield ask
    await server.close()


@pytest.mark.goal("core.B16", part="policies", broken_by="numbers_of_any_size_are_stored")
@pytest.mark.parametrize("level", [SPACE, TOPIC])
@pytest.mark.parametrize(
    ("page", "wide", "status"),
    [
        ("retention", {"retentionTimeInMinutes": WIDE, "retentionSizeInMB": 1}, 400),
        ("publishRate", {"publishThrottlingRateInMsg": WIDE}, 400),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": -WIDE}, 400),
        ("subscribeRate", {"ratePeriodInSecond": WIDE}, 400),
        ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": WIDE}, 400),
        ("backlogQuota", {"limitTime": WIDE, "policy": "producer_exception"}, 400),
        ("maxConsumersPerSubscription", WIDE, 412),
    ],
)
async def test_a_number_that_pulsar_keeps_in_32_bits(ask, level, page, wide, status):
    assert (await ask("PUT", TOPIC)).status == 204
    before = (await ask("GET", SPACE)).body
    assert (await ask("POST", f"{level}/{page}", wide)).status == status
    fits = json.loads(json.dumps(wide).replace(str(WIDE), str(WIDE - 1)))
    assert (await ask("GET", SPACE)).body == before
    assert (await ask("POST", f"{level}/{page}", fits)).status == 204


async def test_what_has_64_bits_may_have_them(ask):
    for page, body in (
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": WIDE}),
        ("publishRate", {"publishThrottlingRateInByte": WIDE}),
        ("backlogQuota", {"limitSize": WIDE, "policy": "producer_exception"}),
    ):
        assert (await ask("POST", f"{SPACE}/{page}", body)).status == 204


async def test_a_time_to_live_has_32_bits(ask):
    for page in ("messageTTL", "deduplicationSnapshotInterval"):
        assert (await ask("POST", f"{SPACE}/{page}", WIDE)).status == 412
    assert (await ask("PUT", TOPIC)).status == 204
    assert (await ask("POST", f"{TOPIC}/messageTTL?messageTTL={WIDE}")).status == 412


@pytest.mark.goal("core.B16", part="namespaces", broken_by="boundaries_are_believed")
@pytest.mark.parametrize(
    "bundles",
    [
        {"boundaries": ["x"]},
        {"boundaries": ["0x00000000"]},
        {"boundaries": ["0x00000000", "0xfffffffe"]},
        {"boundaries": ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"]},
        {"boundaries": ["0xffffffff", "0x00000000"]},
        {"boundaries": ["0x00000000", "-0x1", "0xffffffff"]},
        {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 2},
        {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": WIDE},
        {"numBundles": 0x100000000},
    ],
)
async def test_bundles_that_do_not_hold_every_hash_once(ask, bundles):
    answer = await ask("PUT", "/admin/v2/namespaces/public/odd", {"bundles": bundles})
    assert answer.status == 400
    assert "reason" in json.loads(answer.body)
    assert (await ask("GET", "/admin/v2/namespaces/public/odd")).status == 404


async def test_bundles_of_somebodys_own(ask):
    own = ["0x0", "0x40000000", "0xFFFFFFFF"]
    space = "/admin/v2/namespaces/public/own"
    assert (await ask("PUT", space, {"bundles": {"boundaries": own}})).status == 204
    found = json.loads((await ask("GET", f"{space}/bundles")).body)
    assert found == {"boundaries": ["0x00000000", "0x40000000", "0xffffffff"], "numBundles": 2}
    placed = await ask("GET", "/lookup/v2/topic/persistent/public/own/t/bundle")
    assert placed.body.decode() in ("0x00000000_0x40000000", "0x40000000_0xffffffff")


@pytest.mark.parametrize(
    "policies",
    [
        {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}},
        {"message_ttl_in_seconds": WIDE},
        {"publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": WIDE}}},
        {"inactive_topic_policies": {"inactiveTopicDeleteMode": "fly"}},
        {"persistence": {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2}},
    ],
)
async def test_a_namespace_begins_with_no_worse_policies_than_it_may_be_given(ask, policies):
    assert (await ask("PUT", "/admin/v2/namespaces/public/odd", policies)).status == 400
    assert (await ask("GET", "/admin/v2/namespaces/public/odd")).status == 404


@pytest.mark.parametrize("level", [SPACE, TOPIC])
async def test_a_mode_that_there_is_not(ask, level):
    assert (await ask("PUT", TOPIC)).status == 204
    wrong = await ask("POST", f"{level}/inactiveTopicPolicies", {"inactiveTopicDeleteMode": "fly"})
    assert wrong.status == 400
    assert b"delete_when_no_subscriptions" in wrong.body


async def test_codes_are_those_of_pulsar(ask):
    override = {"allowAutoTopicCreation": True, "topicType": "round"}
    assert (await ask("POST", f"{SPACE}/autoTopicCreation", override)).status == 412
    broken = {"type": "AVRO", "schema": "no schema", "properties": {}}
    schema = "/admin/v2/schemas/public/default/x/schema"
    assert (await ask("POST", schema, broken)).status == 422
    assert (await ask("PUT", TOPIC)).status == 204
    assert (await ask("DELETE", f"{TOPIC}/partitions")).status == 409
    assert (await ask("DELETE", f"{TOPIC}-gone/partitions")).status == 404
