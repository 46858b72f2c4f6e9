"""What an operator does to a topic with messages: skip, expire, peek, truncate, end, unload."""

import asyncio
import json

import pytest

from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call
from anabranch.wire import MessageMetadata, build_entry

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
ONE = "/admin/v2/persistent/public/default/x"
SUBSCRIPTION = f"{ONE}/subscription/s"
OLD_MS, NEW_MS = 1_000, 4_000_000_000_000


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        return await call(server.web_app, path, method=method, body=data)

    assert (await ask("PUT", f"{SUBSCRIPTION}", "earliest")).status == 204
    topic = await server.broker.topics.open(
        TopicName.parse("persistent://public/default/x"), create=False
    )
    for n in range(5):
        metadata = MessageMetadata(
            producer_name="p", sequence_id=n, publish_time=OLD_MS if n < 2 else NEW_MS
        )
        metadata.properties.add(key="k", value=f"v{n}")
        await stored(topic, build_entry(metadata, b"m%d" % n))
    ask.server = server
    yield ask
    await server.close()


async def stored(topic, entry):
    """Append to the log itself, as a producer's message ends there."""

    done = asyncio.get_running_loop().create_future()

    def appended(position, error):
        done.set_result(position) if error is None else done.set_exception(error)

    topic.ledger.append(entry, appended)
    await done


async def backlog(ask):
    answer = await ask("GET", f"{ONE}/stats")
    return json.loads(answer.body)["subscriptions"]["s"]["msgBacklog"]


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
        assert answer.headers["x-pulsar-property-k"] == f"v{place - 1}"
        assert answer.headers["x-pulsar-message-id"].endswith(f":{place - 1}")
    assert (await ask("GET", f"{SUBSCRIPTION}/position/6")).status == 404
    assert (await ask("GET", f"{SUBSCRIPTION}/position/0")).status == 412
    first = await ask("GET", f"{ONE}/examinemessage?initialPosition=earliest&messagePosition=2")
    assert first.body == b"m1"
    last = await ask("GET", f"{ONE}/examinemessage?initialPosition=latest&messagePosition=1")
    assert last.body == b"m4"
    assert await backlog(ask) == 5


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


async def test_truncating_lets_go_of_everything(ask):
    assert (await ask("DELETE", f"{ONE}/truncate")).status == 204
    assert await backlog(ask) == 0
