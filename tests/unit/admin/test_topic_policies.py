"""Policies of single topics by REST: set, read, applied, cleared; and lived by at once.

The answers were taken from Apache Pulsar 5.0.0-M1, asked the same questions.
"""

import asyncio
import json

import pytest

from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
SPACE = "namespaces/public/default"
ONE = "persistent/public/default/x"
RATE = {
    "dispatchThrottlingRateInMsg": 5,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
PUBLISH_RATE = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
QUORUMS = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 1.0,
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 30,
    "deleteWhileInactive": True,
}
EMPTY, NO_CONTENT = (200, None), (204, None)


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        answer = await call(server.web_app, f"/admin/v2/{path}", method=method, body=data)
        return answer.status, json.loads(answer.body) if answer.body else None

    ask.server = server
    assert await ask("PUT", ONE, {}) == NO_CONTENT
    yield ask
    await server.close()


async def lives_by(ask, topic, condition):
    """Wait until an open topic has heard of its policies."""
    async with asyncio.timeout(20):
        while not condition(topic.policies):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.mark.goal("core.B16", part="topic policies", broken_by="policies_are_not_stored")
@pytest.mark.parametrize(
    ("page", "value", "unset", "applied"),
    [
        ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}, EMPTY,
         {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}),
        ("deduplicationEnabled", True, EMPTY, False),
        ("deduplicationSnapshotInterval", 10, EMPTY, None),
        ("persistence", QUORUMS, EMPTY, None),
        ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}, EMPTY,
         {"allowAutoSubscriptionCreation": True}),
        ("dispatchRate", RATE, EMPTY, {**RATE, "dispatchThrottlingRateInMsg": 0}),
        ("subscriptionDispatchRate", RATE, EMPTY, None),
        ("s/dispatchRate", RATE, EMPTY, None),
        ("publishRate", PUBLISH_RATE, NO_CONTENT, None),
        ("subscribeRate", {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
         EMPTY, None),
        ("delayedDelivery", {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0}, EMPTY,
         None),
        ("inactiveTopicPolicies", INACTIVE, EMPTY, {**INACTIVE, "maxInactiveDurationSeconds": 60}),
        ("maxProducers", 3, EMPTY, 0),
        ("maxConsumers", 3, EMPTY, 0),
        ("maxConsumersPerSubscription", 3, NO_CONTENT, 0),
        ("maxUnackedMessagesOnConsumer", 3, EMPTY, 50_000),
        ("maxUnackedMessagesOnSubscription", 3, EMPTY, 200_000),
        ("maxSubscriptionsPerTopic", 3, NO_CONTENT, 0),
        ("maxMessageSize", 100, NO_CONTENT, None),
        ("subscriptionExpirationTime", 5, EMPTY, 0),
        ("compactionThreshold", 0, EMPTY, None),
        ("subscriptionTypesEnabled", ["Shared"], (200, []), None),
    ],
)  # fmt: skip
async def test_policies_of_a_topic_are_set_read_and_cleared(ask, page, value, unset, applied):
    path = f"{ONE}/{page}"
    assert await ask("GET", path) == unset
    if applied is not None:
        status, counts = await ask("GET", f"{path}?applied=true")
        if page == "dispatchRate":
            counts["dispatchThrottlingRateInByte"] = -1  # 0 and -1 both mean no limit
        assert (status, counts) == (200, applied)
    assert await ask("POST", path, value) == NO_CONTENT
    assert await ask("GET", path) == (200, value)
    if applied is not None:
        assert await ask("GET", f"{path}?applied=true") == (200, value)
    assert await ask("GET", f"persistent/public/default/other/{page}") == (
        404,
        {"reason": "Topic persistent://public/default/other not found"},
    )
    assert await ask("DELETE", path) == NO_CONTENT
    assert await ask("GET", path) == unset


async def test_policies_that_are_said_otherwise(ask):
    assert await ask("POST", f"{ONE}/messageTTL?messageTTL=60") == NO_CONTENT
    assert await ask("GET", f"{ONE}/messageTTL") == (200, 60)
    assert (await ask("POST", f"{ONE}/messageTTL?messageTTL=-60"))[0] == 412
    assert (await ask("POST", f"{ONE}/messageTTL?messageTTL=x"))[0] == 404
    assert await ask("GET", f"{ONE}/messageTTL?applied=true") == (200, 60)
    quota = {"limitSize": 10, "limitTime": -1, "policy": "producer_exception"}
    assert await ask("POST", f"{ONE}/backlogQuota", quota) == NO_CONTENT
    assert (await ask("POST", f"{ONE}/backlogQuota", {**quota, "policy": "x"}))[0] == 400
    assert await ask("GET", f"{ONE}/backlogQuotaMap") == (200, {"destination_storage": quota})
    _, both = await ask("GET", f"{ONE}/backlogQuotaMap?applied=true")
    assert sorted(both) == ["destination_storage", "message_age"]
    assert await ask("DELETE", f"{ONE}/backlogQuota") == NO_CONTENT
    assert await ask("GET", f"{ONE}/backlogQuotaMap") == (200, {})
    strategy = f"{ONE}/schemaCompatibilityStrategy"
    assert await ask("PUT", strategy, "FORWARD") == NO_CONTENT
    assert await ask("GET", f"{strategy}?applied=true") == (200, "FORWARD")
    assert await ask("DELETE", strategy) == NO_CONTENT
    assert await ask("GET", f"{strategy}?applied=true") == (200, "FULL")
    assert await ask("GET", f"{ONE}/schemaValidationEnforced") == (200, False)
    assert await ask("POST", f"{ONE}/schemaValidationEnforced", True) == NO_CONTENT
    assert await ask("GET", f"{ONE}/schemaValidationEnforced") == (200, True)


async def test_policies_that_are_refused_change_nothing(ask):
    for page, body, status in (
        ("maxProducers", -3, 412),
        ("maxProducers", "x", 400),
        ("maxProducers", None, 400),
        ("maxMessageSize", 10**9, 412),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, 400),
        ("persistence", {**QUORUMS, "bookkeeperWriteQuorum": 4}, 400),
        ("persistence", {**QUORUMS, "bookkeeperEnsemble": 1001}, 400),
        ("maxProducers?isGlobal=true", 3, 405),
        ("subscriptionTypesEnabled", ["Sometimes"], 400),
    ):
        assert (await ask("POST", f"{ONE}/{page}", body))[0] == status, page
    assert await ask.server.metadata.children("/admin/topic-policies/local") == []


@pytest.mark.goal("core.B16", part="topic policies", broken_by="namespaces_go_before_topics")
async def test_a_topic_goes_before_its_namespace_and_that_before_the_broker(ask):
    assert await ask("PUT", "persistent/public/default/p/partitions", 2) == NO_CONTENT
    topics = ask.server.broker.topics
    part = await topics.open(
        TopicName.parse("persistent://public/default/p-partition-1"), create=False
    )
    other = await topics.open(TopicName.parse("persistent://public/default/x"), create=False)
    words = {"reason": "Not allowed to set/get topic policy for a partition"}
    page = "persistent/public/default/p-partition-0/messageTTL"
    assert await ask("GET", page) == (412, words)
    assert await ask("POST", f"{page}?messageTTL=5") == (412, words)
    assert await ask("POST", f"{SPACE}/messageTTL", 60) == NO_CONTENT
    assert await ask("POST", "persistent/public/default/p/messageTTL?messageTTL=5") == NO_CONTENT
    await lives_by(ask, part, lambda found: found.message_ttl_s == 5)
    await lives_by(ask, other, lambda found: found.message_ttl_s == 60)
    assert await ask("DELETE", "persistent/public/default/p/messageTTL") == NO_CONTENT
    await lives_by(ask, part, lambda found: found.message_ttl_s == 60)
    assert await ask("DELETE", f"{SPACE}/messageTTL") == NO_CONTENT
    await lives_by(ask, part, lambda found: found.message_ttl_s == 0)


async def test_one_subscription_has_a_rate_of_its_own(ask):
    topics = ask.server.broker.topics
    topic = await topics.open(TopicName.parse("persistent://public/default/x"), create=False)
    assert await ask("POST", f"{ONE}/s/dispatchRate", RATE) == NO_CONTENT
    await lives_by(ask, topic, lambda found: found.dispatch_rate_of("s").messages == 5)
    assert topic.policies.dispatch_rate_of("other").messages <= 0


@pytest.mark.goal("core.B16", part="topic policies", broken_by="policies_outlive_their_topic")
async def test_policies_end_with_their_topic(ask):
    assert await ask("POST", f"{ONE}/maxProducers", 3) == NO_CONTENT
    assert await ask("DELETE", ONE) == NO_CONTENT
    assert await ask("PUT", ONE, {}) == NO_CONTENT
    assert await ask("GET", f"{ONE}/maxProducers") == EMPTY
    whole = "persistent/public/default/p"
    assert await ask("PUT", f"{whole}/partitions", 2) == NO_CONTENT
    assert await ask("POST", f"{whole}/maxProducers", 3) == NO_CONTENT
    assert await ask("DELETE", f"{whole}/partitions") == NO_CONTENT
    assert await ask("PUT", f"{whole}/partitions", 2) == NO_CONTENT
    assert await ask("GET", f"{whole}/maxProducers") == EMPTY
