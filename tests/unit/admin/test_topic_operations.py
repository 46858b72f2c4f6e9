"""What an operator does to a topic with messages: skip, expire, peek, truncate, end, unload."""

import json

import pytest
from topic_with_messages import OLD_MS, ONE, SUBSCRIPTION, ask, backlog, stored

from anabranch.ids import TopicName
from anabranch.wire import MessageMetadata, build_entry

__all__ = ["ask"]


@pytest.mark.goal("core.B16", part="stats", broken_by="statistics_lack_the_backlog")
@pytest.mark.goal("core.B13", part="stats", broken_by="statistics_lack_the_backlog")
async def test_statistics_count_what_waits(ask):
    answer = await ask("GET", f"{ONE}/stats")
    stats = json.loads(answer.body)
    assert stats["subscriptions"]["s"]["msgBacklog"] == 5
    assert stats["storageSize"] > 0
    assert stats["backlogSize"] == stats["storageSize"]
    assert (stats["publishers"], stats["subscriptions"]["s"]["consumers"]) == ([], [])
    assert stats["ownerBroker"] == "127.0.0.1:1234"


@pytest.mark.goal("core.B13", part="internal stats", broken_by="internal_statistics_count_nothing")
async def test_internal_statistics_show_ledgers_and_cursors(ask):
    found = json.loads((await ask("GET", f"{ONE}/internalStats")).body)
    assert (found["numberOfEntries"], found["state"]) == (5, "LedgerOpened")
    assert sum(ledger["entries"] for ledger in found["ledgers"]) == 5
    last = found["ledgers"][-1]["ledgerId"]
    assert found["lastConfirmedEntry"] == f"{last}:4"
    assert found["cursors"]["s"]["numberOfEntriesSinceFirstNotAckedMessage"] == 5


@pytest.mark.goal("core.B13", part="skip", broken_by="skips_are_only_answered")
async def test_messages_are_skipped(ask):
    assert (await ask("POST", f"{SUBSCRIPTION}/skip/2")).status == 204
    assert await backlog(ask) == 3
    assert (await ask("POST", f"{SUBSCRIPTION}/skip_all")).status == 204
    assert await backlog(ask) == 0
    assert (await ask("POST", f"{SUBSCRIPTION}/resetcursor/0")).status == 204
    assert await backlog(ask) == 5
    everywhere = "/admin/v2/namespaces/public/default/clearBacklog"
    assert (await ask("POST", everywhere)).status == 204
    assert await backlog(ask) == 0


@pytest.mark.goal("core.B13", part="expire", broken_by="expiry_takes_everything")
async def test_old_messages_expire(ask):
    assert (await ask("POST", f"{SUBSCRIPTION}/expireMessages/60")).status == 204
    assert await backlog(ask) == 3
    assert (await ask("POST", f"{SUBSCRIPTION}/expireMessages/60")).status == 409
    assert await backlog(ask) == 3


@pytest.mark.goal("core.B13", part="peek", broken_by="peeks_look_at_the_first_alone")
async def test_messages_are_looked_at_and_stay(ask):
    for place in (1, 2, 5):
        answer = await ask("GET", f"{SUBSCRIPTION}/position/{place}")
        assert (answer.status, answer.body) == (200, b"m%d" % (place - 1))
        assert json.loads(answer.headers["X-Pulsar-PROPERTY"]) == {"k": f"v{place - 1}"}
        assert answer.headers["X-Pulsar-Message-ID"].endswith(f":{place - 1}")
    assert (await ask("GET", f"{SUBSCRIPTION}/position/6")).status == 404
    assert (await ask("GET", f"{SUBSCRIPTION}/position/0")).status == 412
    first = await ask("GET", f"{ONE}/examinemessage?initialPosition=earliest&messagePosition=2")
    assert first.body == b"m1"
    last = await ask("GET", f"{ONE}/examinemessage?initialPosition=latest&messagePosition=1")
    assert last.body == b"m4"
    assert await backlog(ask) == 5


@pytest.mark.goal("core.S1", part="unpacking", broken_by="anything_is_unpacked")
async def test_a_message_that_says_it_is_huge_is_not_unpacked(ask):
    topic = ask.server.broker.topics.get(TopicName.parse("persistent://public/default/x"))
    metadata = MessageMetadata(
        producer_name="p", sequence_id=9, publish_time=1, compression=1, uncompressed_size=2**31
    )
    await stored(topic, build_entry(metadata, b"small"))
    answer = await ask("GET", f"{SUBSCRIPTION}/position/6")
    assert answer.status == 422
    assert b"unpacks to 2147483648 bytes" in answer.body


@pytest.mark.goal("core.B13", part="terminate", broken_by="topics_go_on_for_ever")
async def test_a_topic_is_ended_for_good(ask):
    ended = json.loads((await ask("POST", f"{ONE}/terminate")).body)
    assert ended["entryId"] == 4
    assert json.loads((await ask("POST", f"{ONE}/terminate")).body) == ended
    assert json.loads((await ask("GET", f"{ONE}/internalStats")).body)["state"] == "Terminated"
    assert await backlog(ask) == 5


@pytest.mark.goal("core.B13", part="unload", broken_by="unloading_is_only_answered")
async def test_a_topic_is_closed_and_opens_again_with_what_it_had(ask):
    topics = ask.server.broker.topics
    assert len(topics) == 1
    assert (await ask("PUT", f"{ONE}/unload")).status == 204
    assert len(topics) == 0
    assert await backlog(ask) == 5
    assert (await ask("PUT", "/admin/v2/namespaces/public/default/unload")).status == 204
    assert len(topics) == 0
    assert (await ask("PUT", f"{ONE}-that-is-none/unload")).status == 404


@pytest.mark.goal("core.B13", part="truncate", broken_by="truncating_keeps_what_is_stored")
async def test_truncating_lets_go_of_everything(ask):
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    page = "/admin/v2/namespaces/public/default/retention"
    assert (await ask("POST", page, keep)).status == 204
    assert (await ask("DELETE", f"{ONE}/truncate")).status == 204
    assert await backlog(ask) == 0
    left = json.loads((await ask("GET", f"{ONE}/internalStats")).body)
    assert (left["numberOfEntries"], left["totalSize"]) == (0, 0)
    nothing = await ask("GET", f"{ONE}/examinemessage?initialPosition=earliest")
    assert nothing.status == 412


async def test_partitions_are_served_together_or_refused(ask):
    page = "/admin/v2/persistent/public/default/p"
    assert (await ask("PUT", f"{page}/partitions", 3)).status == 204
    assert (await ask("PUT", f"{page}/subscription/s", "earliest")).status == 204
    for n in range(3):
        name = TopicName.parse(f"persistent://public/default/p-partition-{n}")
        topic = await ask.server.broker.topics.open(name, create=False)
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=OLD_MS)
        await stored(topic, build_entry(metadata, b"m"))

    async def waiting():
        found = json.loads((await ask("GET", f"{page}/partitioned-stats")).body)
        return found["subscriptions"]["s"]["msgBacklog"]

    assert await waiting() == 3
    one = f"{page}/subscription/s"
    assert (await ask("POST", f"{one}/skip/1")).status == 405
    assert (await ask("GET", f"{one}/position/1")).status == 405
    assert (await ask("POST", f"{one}/resetcursor", {"ledgerId": 0, "entryId": 0})).status == 405
    assert (await ask("POST", f"{one}/expireMessages/60")).status == 204
    assert await waiting() == 0
    assert (await ask("POST", f"{one}/resetcursor/0")).status == 204
    assert await waiting() == 3
    assert (await ask("POST", f"{one}/skip_all")).status == 204
    assert await waiting() == 0
    assert (await ask("DELETE", f"{page}/truncate")).status == 204
    assert (await ask("POST", f"{page}/terminate")).status == 405
    ended = json.loads((await ask("POST", f"{page}/terminate/partitions")).body)
    assert sorted(ended) == ["0", "1", "2"]
    assert (await ask("DELETE", one)).status == 204
    assert json.loads((await ask("GET", f"{page}/subscriptions")).body) == []
    assert (await ask("DELETE", f"{page}/partitions")).status == 204
