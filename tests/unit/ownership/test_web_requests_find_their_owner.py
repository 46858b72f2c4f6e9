"""Requests to the web interface of a broker that does not have what they are about."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from several_brokers import Member
from several_webs import TOPICS, Webs, served, several_webs

from anabranch.admin import WebInterface
from anabranch.admin.served import TopicAddress
from anabranch.admin.web_client import ask
from anabranch.errors import Unreachable
from anabranch.ids import TopicName
from anabranch.testing.web_call import WebAnswer, call

NAMESPACE = "/admin/v2/namespaces/public/default"


@pytest.fixture
async def webs() -> AsyncIterator[Webs]:
    async with several_webs() as brokers:
        yield brokers


async def follow(webs: Webs, member: Member, method: str, path: str) -> tuple[WebAnswer, Member]:
    """Ask, and go where the answer says; who answered in the end."""
    for _ in range(3):
        answer = await webs.ask(member, method, path)
        if answer.status != 307:
            return answer, member
        host, path = answer.headers["location"].removeprefix("http://").split("/", 1)
        path = f"/{path}"
        member = next(each for each in webs.brokers.members if each.id == host)
    raise AssertionError("sent in circles")


@pytest.mark.goal("core.B16", part="redirects", broken_by="requests_stay_where_they_came")
async def test_a_request_is_sent_to_the_owner_of_its_topic(webs: Webs) -> None:
    for asked in webs.brokers.members:
        answer, owner = await follow(webs, asked, "PUT", f"{TOPICS}/orders?x=a%26b")
        assert answer.status == (204 if asked is webs.brokers[0] else 409), answer.body
        assert owner is await webs.brokers.owner()
        if asked is not owner:
            sent = await webs.ask(asked, "GET", f"{TOPICS}/orders/stats?authoritative=true")
            assert sent.status == 307
            target = sent.headers["location"]
            assert target == f"http://{owner.id}{TOPICS}/orders/stats?authoritative=false"
        stats, found = await follow(webs, asked, "GET", f"{TOPICS}/orders/stats")
        assert (found, stats.status) == (owner, 200)
        assert json.loads(stats.body)["ownerBroker"] == owner.id


async def test_every_broker_names_the_same_leader(webs: Webs) -> None:
    said = {
        (await webs.ask(each, "GET", "/admin/v2/brokers/leaderBroker")).body
        for each in webs.brokers.members
    }
    (leader,) = said
    assert json.loads(leader)["brokerId"] == webs.brokers[0].ownership.membership.leader
    assert json.loads(leader)["serviceUrl"] == f"http://{json.loads(leader)['brokerId']}"


@pytest.mark.goal("core.B16", part="redirects", broken_by="partitions_elsewhere_are_left_out")
async def test_partitions_are_served_where_each_of_them_is(webs: Webs) -> None:
    asked = webs.brokers[1]
    page = f"{TOPICS}/p"
    assert (await webs.ask(asked, "PUT", f"{page}/partitions", 8)).status == 204
    made = await webs.ask(asked, "PUT", f"{page}/subscription/s%2F1")
    assert made.status == 204, made.body
    owners = await webs.owners()
    assert len(owners) >= 2
    assert sorted(n for each in owners.values() for n in each) == list(range(8))
    for member in webs.brokers.members:
        named = await webs.ask(member, "GET", f"{page}/subscriptions")
        assert json.loads(named.body) == ["s/1"]
        stats = json.loads((await webs.ask(member, "GET", f"{page}/partitioned-stats")).body)
        shown = {
            int(name.rpartition("-")[2]): each["ownerBroker"]
            for name, each in stats["partitions"].items()
        }
        assert shown == {n: owner for owner, numbers in owners.items() for n in numbers}
    again = await webs.ask(asked, "PUT", f"{page}/subscription/s%2F1")
    assert (again.status, json.loads(again.body)["reason"]) == (
        409,
        "Subscription already exists for topic",
    )
    assert (await webs.ask(asked, "DELETE", f"{page}/partitions?force=true")).status == 204
    assert json.loads((await webs.ask(asked, "GET", TOPICS)).body) == []


async def test_other_brokers_are_asked_with_the_credentials_of_the_client(webs: Webs) -> None:
    asked = webs.brokers[1]
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/partitions", 8)).status == 204
    app = webs.wires.apps[int(asked.url.rpartition(":")[2])]
    for shown in (
        {},
        {"authorization": "Bearer t"},
        {"authorization": "Bearer t", "x-original-principal": "alice", "cookie": "c"},
    ):
        webs.wires.shown.clear()
        await call(app, f"{TOPICS}/p/partitioned-stats", method="GET", headers=shown)
        told = (shown.get("authorization"), shown.get("x-original-principal"))
        assert set(webs.wires.shown) == {told}


@pytest.mark.goal("core.B16", part="redirects", broken_by="bundles_elsewhere_are_not_unloaded")
async def test_a_bundle_is_given_up_by_whoever_has_it(webs: Webs) -> None:
    _, owner = await follow(webs, webs.brokers[0], "PUT", f"{TOPICS}/orders")
    bundle = await webs.brokers.bundle()
    other, third = (each for each in webs.brokers.members if each is not owner)
    page = f"{NAMESPACE}/{bundle.range_text}/unload"
    wrong = await webs.ask(owner, "PUT", f"{page}?destinationBroker=nobody:1")
    assert wrong.status == 409
    assert bundle in owner.ownership.owned()
    sent = await webs.ask(other, "PUT", f"{page}?destinationBroker={third.id}")
    assert sent.status == 307
    given, gave = await follow(webs, other, "PUT", f"{page}?destinationBroker={third.id}")
    assert (given.status, gave) == (204, owner)
    assert bundle not in owner.ownership.owned()
    stats, now = await follow(webs, other, "GET", f"{TOPICS}/orders/stats")
    assert (stats.status, now) == (200, third)
    assert (await webs.ask(owner, "PUT", f"{NAMESPACE}/0x0_0x1/unload")).status == 412


@pytest.mark.goal("core.B16", part="redirects", broken_by="bundles_elsewhere_are_not_unloaded")
async def test_a_namespace_is_given_up_by_all(webs: Webs) -> None:
    asked = webs.brokers[2]
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/partitions", 8)).status == 204
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/subscription/s")).status == 204
    held = {each.id: each.ownership.owned() for each in webs.brokers.members}
    assert sum(map(len, held.values())) == 4
    assert (await webs.ask(asked, "POST", f"{NAMESPACE}/clearBacklog")).status == 204
    assert (await webs.ask(asked, "PUT", f"{NAMESPACE}/unload")).status == 204
    assert not any(each.ownership.owned() for each in webs.brokers.members)
    assert (await webs.ask(asked, "POST", f"{NAMESPACE}/unsubscribe/s")).status == 204
    left = await webs.ask(asked, "GET", f"{TOPICS}/p/subscriptions")
    assert json.loads(left.body) == []


async def test_partitions_that_are_gone_already_do_not_hold_up_a_delete(webs: Webs) -> None:
    asked = webs.brokers[0]
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/partitions", 8)).status == 204
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/subscription/s")).status == 204
    for numbers in (await webs.owners()).values():
        answer, _ = await follow(
            webs, asked, "DELETE", f"{TOPICS}/p-partition-{min(numbers)}?force=true"
        )
        assert answer.status == 204
    ended = await webs.ask(asked, "DELETE", f"{TOPICS}/p/partitions?force=true")
    assert ended.status == 204, ended.body
    assert json.loads((await webs.ask(asked, "GET", f"{TOPICS}/partitioned")).body) == []
    assert json.loads((await webs.ask(asked, "GET", TOPICS)).body) == []


async def test_an_owner_that_does_not_answer_is_named(webs: Webs) -> None:
    asked = webs.brokers[0]
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/partitions", 8)).status == 204
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/subscription/s")).status == 204
    gone = next(owner for owner in sorted(await webs.owners()) if owner != asked.id)
    del webs.wires.apps[int(gone.rpartition(":")[2])]
    answer = await webs.ask(asked, "DELETE", f"{TOPICS}/p/subscription/s")
    assert answer.status == 503
    assert gone in json.loads(answer.body)["reason"]


LOOKUP = "/lookup/v2/topic/persistent/public/default/elsewhere"


async def register_with(member: Member, **addresses: str) -> None:
    """Let the others see a broker at other addresses than it has."""
    shown = replace(member.ownership.me, **addresses)
    await member.store.put(f"/loadbalance/brokers/{member.id}", shown.as_registration())


async def pages_elsewhere(webs: Webs) -> list[tuple[Member, Member, str]]:
    """Who is asked, who has the answer, and a page of each kind that sends a request on."""
    _, owner = await follow(webs, webs.brokers[0], "PUT", f"{TOPICS}/orders")
    asked = next(each for each in webs.brokers.members if each is not owner)
    return [
        (asked, owner, f"{TOPICS}/orders/stats"),
        (asked, owner, f"/admin/v2/brokers/standalone/{owner.id}/ownedNamespaces"),
    ]


async def test_a_request_in_tls_is_not_sent_on_in_the_clear(webs: Webs) -> None:
    for asked, owner, page in await pages_elsewhere(webs):
        answer = await webs.ask_in_tls(asked, page)
        assert answer.status == 412, (page, answer.headers)
        assert f"broker {owner.id} has no web interface in TLS" in json.loads(answer.body)["reason"]


async def test_a_request_in_tls_is_sent_on_in_tls(webs: Webs) -> None:
    for asked, owner, page in (await pages_elsewhere(webs))[1:]:
        await register_with(owner, web_url_tls="https://other:8443")
        answer = await webs.ask_in_tls(asked, page)
        sent = answer.headers["location"].partition("?")[0]
        assert (answer.status, sent) == (307, f"https://other:8443{page}")
        await register_with(owner, web_url="", web_url_tls="https://other:8443")
        plain = await webs.ask(asked, "GET", page)
        assert plain.headers["location"].startswith(f"https://other:8443{page}"), "it has TLS alone"


@pytest.mark.parametrize(
    ("scheme", "address", "said"),
    [
        ("https", TopicAddress("", "", "http://b:1", ""), None),
        ("https", TopicAddress("", "", "http://b:1", "https://b:2"), "https://b:2"),
        ("http", TopicAddress("", "", "", "https://b:2"), "https://b:2"),
        ("http", TopicAddress("", "", "http://b:1", "https://b:2"), "http://b:1"),
    ],
)
async def test_a_lookup_goes_on_as_it_came(
    webs: Webs, scheme: str, address: TopicAddress, said: str | None
) -> None:
    async def located(_topic: TopicName, *, authoritative: bool) -> TopicAddress:
        return replace(address, is_owner=authoritative)

    there = served(webs.brokers[0], webs.wires)
    there.locate = located
    answer = await call(WebInterface(there), LOOKUP, scheme=scheme)  # type: ignore[arg-type]
    if said is None:
        assert (answer.status, "location" in answer.headers) == (412, False)
    else:
        assert answer.headers["location"] == f"{said}{LOOKUP}?authoritative=true"


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        ("https://b:1/x", "http://b:2/x", "in the clear"),
        ("http://b:1/x", "http://stranger:2/x", "no broker of this cluster"),
    ],
)
async def test_credentials_of_clients_are_kept_from_others(first: str, then: str, why: str) -> None:
    reached: list[int] = []

    class Sends:
        async def connect(self, _host: str, port: int, make: Any, *, tls: Any = None) -> Any:
            reached.append(port)
            handler = make()
            handler.connection_made(SimpleNamespace(write=len, abort=lambda: None))
            handler.data_received(f"HTTP/1.1 307 x\r\nLocation: {then}\r\n\r\n".encode())
            handler.connection_lost(None)
            return handler

    async def known(url: str) -> bool:
        return "stranger" not in url

    way: Any = Sends()
    with pytest.raises(Unreachable, match=why):
        await ask(way, "GET", first, headers={"Authorization": "Bearer secret"}, may_go_to=known)
    assert reached == [1]


async def test_a_path_that_is_no_ascii_is_sent_on_encoded(webs: Webs) -> None:
    asked = webs.brokers[0]
    page = f"{TOPICS}/\N{GREEK SMALL LETTER OMEGA}"
    assert (await webs.ask(asked, "PUT", f"{page}/partitions", 8)).status == 204
    assert (await webs.ask(asked, "PUT", f"{page}/subscription/s")).status == 204
    webs.wires.asked.clear()
    assert (await webs.ask(asked, "DELETE", f"{page}/subscription/s")).status == 204
    assert webs.wires.asked
    assert all("/%CF%89-partition-" in each for each in webs.wires.asked)
    app = webs.wires.apps[int(asked.url.rpartition(":")[2])]
    elsewhere = [await call(app, f"{page}-partition-{n}/stats") for n in range(8)]
    sent = [each.headers["location"] for each in elsewhere if each.status == 307]
    assert sent
    assert all("/%CF%89-partition-" in each for each in sent)
