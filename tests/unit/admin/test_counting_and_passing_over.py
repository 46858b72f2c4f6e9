"""What operators ask of a backlog by message: counting, passing over; and where things are."""

import json
from itertools import pairwise

import pytest
from topic_with_messages import ONE, SUBSCRIPTION, ask, backlog

from anabranch.ids import TopicName
from anabranch.ownership.bundles import Bundle, hash_of

__all__ = ["ask"]
NAME = TopicName.parse("persistent://public/default/x")
BUNDLES = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")


async def ledger_of(ask):
    found = json.loads((await ask("GET", f"{ONE}/internalStats")).body)
    return found["ledgers"][-1]["ledgerId"]


async def analyzed(ask, body=None):
    answer = await ask("POST", f"{SUBSCRIPTION}/analyzeBacklog", body)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


@pytest.mark.goal("core.B13", part="analyze", broken_by="acknowledged_messages_are_counted")
async def test_a_backlog_is_counted_by_reading_it(ask):
    ledger = await ledger_of(ask)
    found = await analyzed(ask)
    assert (found["entries"], found["messages"], found["aborted"]) == (5, 5, False)
    assert (found["firstMessageId"], found["lastMessageId"]) == (f"{ledger}:0", f"{ledger}:4")
    assert found["filterAcceptedEntries"] == 5
    assert found["filterRejectedEntries"] == found["filterRescheduledEntries"] == 0
    assert (await ask("POST", f"{SUBSCRIPTION}/skip/2")).status == 204
    found = await analyzed(ask)
    assert (found["entries"], found["firstMessageId"]) == (3, f"{ledger}:2")
    found = await analyzed(ask, {"ledgerId": ledger, "entryId": 4})
    assert (found["entries"], found["firstMessageId"]) == (1, f"{ledger}:4")
    assert (await ask("POST", f"{SUBSCRIPTION}/skip_all")).status == 204
    found = await analyzed(ask)
    assert (found["entries"], found["firstMessageId"], found["aborted"]) == (0, None, False)
    assert (await ask("POST", f"{ONE}/subscription/none/analyzeBacklog")).status == 404


@pytest.mark.goal("core.B13", part="expire", broken_by="expiry_by_message_takes_everything")
async def test_messages_expire_up_to_one(ask):
    ledger = await ledger_of(ask)
    page = f"{SUBSCRIPTION}/expireMessages"

    def place(entry, **more):
        return {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1, **more}

    assert (await ask("POST", page, place(1))).status == 204
    assert await backlog(ask) == 3
    assert (await ask("POST", page, place(3, isExcluded=True))).status == 204
    assert await backlog(ask) == 2
    answer = await ask("POST", page, place(2))
    assert (answer.status, b"not issued" in answer.body) == (409, True)
    assert (await ask("POST", page, place(99))).status == 409
    other = {"ledgerId": ledger, "entryId": 4, "partitionIndex": 3}
    assert (await ask("POST", page, other)).status == 412
    assert (await ask("POST", page, "latest")).status == 400
    assert await backlog(ask) == 2


@pytest.mark.goal("core.B16", part="namespaces", broken_by="all_topics_of_a_bundle_are_shown")
async def test_topics_are_found_among_the_hashes_of_their_bundle(ask):
    places = {}
    for low, high in pairwise(BUNDLES):
        page = f"/admin/v2/namespaces/public/default/{low}_{high}/topicHashPositions"
        answer = await ask("GET", page)
        if answer.status == 412:
            continue  # nobody has asked for a topic of it
        found = json.loads(answer.body)
        assert (found["namespace"], found["bundle"]) == ("public/default", f"{low}_{high}")
        assert (str(NAME) in found["topicHashPositions"]) == Bundle.parse(
            "public/default", f"{low}_{high}"
        ).holds(NAME)
        places |= found["topicHashPositions"]
        other = await ask("GET", f"{page}?topics=persistent://public/default/other")
        assert json.loads(other.body)["topicHashPositions"] == {}
    assert places == {str(NAME): hash_of(NAME)}


@pytest.mark.goal("core.B16", part="schemas", broken_by="places_of_schemas_are_their_numbers")
async def test_schemas_are_found_where_they_are_stored(ask):
    page = "/admin/v2/schemas/public/default/x"
    assert (await ask("GET", f"{page}/metadata")).status == 404
    schema = {"type": "STRING", "schema": "", "properties": {}}
    assert (await ask("POST", f"{page}/schema", schema)).status == 200
    found = json.loads((await ask("GET", f"{page}/metadata")).body)
    assert (found["info"]["version"], len(found["index"])) == (0, 1)
    assert found["info"] == found["index"][0]
    assert found["info"]["ledgerId"] >= 0


@pytest.mark.goal("core.B10", part="compatibility strategies", broken_by="older_policies_are_deaf")
async def test_the_older_name_of_a_strategy_counts_where_the_newer_is_not_set(ask):
    page, schemas = "/admin/v2/namespaces/public/default", "/admin/v2/schemas/public/default/x"
    older = f"{page}/schemaAutoUpdateCompatibilityStrategy"

    async def strategy():
        schema = {"type": "STRING", "schema": "", "properties": {}}
        answer = await ask("POST", f"{schemas}/compatibility", schema)
        return json.loads(answer.body)["schemaCompatibilityStrategy"]

    assert await strategy() == "FULL"
    assert (await ask("PUT", older, "Forward")).status == 204
    assert json.loads((await ask("GET", older)).body) == "Forward"
    assert await strategy() == "FORWARD"
    assert (await ask("PUT", f"{page}/schemaCompatibilityStrategy", "BACKWARD")).status == 204
    assert await strategy() == "BACKWARD"
    assert (await ask("PUT", older, "Sideways")).status == 400
