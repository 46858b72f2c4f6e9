"""A request that a broker passes on to others is still that of the client who made it."""

import json
from collections.abc import AsyncIterator

import pytest
from several_brokers import Member
from several_webs import TOPICS, Webs, served, several_webs

from anabranch.admin import WebInterface
from anabranch.security import Authorization, Identity
from anabranch.security.authorization import Grants
from anabranch.testing.web_call import call

CLIENT, BROKER = "client", "broker-of-the-cluster"
UNSPEAKABLE = (
    "m\N{LATIN SMALL LETTER U WITH DIAERESIS}ller",
    f" {CLIENT}",
    f"{CLIENT} ",
    "two\nlines",
)
"""Roles that would be others, or none, as the value of a header."""


@pytest.fixture
async def webs() -> AsyncIterator[Webs]:
    async with several_webs() as brokers:
        yield brokers


class Recognised:
    """Takes who comes without a header by its certificate: a client here, a broker elsewhere."""

    def __init__(self, role: str) -> None:
        self._role = role

    def identify_web(self, authorization: str | None, certificate: object) -> Identity:
        del certificate
        return Identity(self._role if authorization is None else authorization, "tls")


class OneTenant:
    async def tenant_admins(self, tenant: str) -> set[str]:
        del tenant
        return {CLIENT, BROKER, "by-token", *UNSPEAKABLE}

    async def grants(self, namespace: str) -> Grants:
        del namespace
        return Grants()


def guard(webs: Webs, asked: Member, *, client: str = CLIENT, proxies: tuple[str, ...]) -> None:
    for member in webs.brokers.members:
        port = int(member.url.rpartition(":")[2])
        there = served(member, webs.wires)
        there.authentication = Recognised(client if member is asked else BROKER)
        there.authorization = Authorization(OneTenant(), proxy_roles=proxies)
        webs.wires.apps[port] = WebInterface(there)  # type: ignore[arg-type]


async def partitions_elsewhere(webs: Webs) -> Member:
    asked = webs.brokers[0]
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/partitions", 8)).status == 204
    assert (await webs.ask(asked, "PUT", f"{TOPICS}/p/subscription/s")).status == 204
    assert set(await webs.owners()) - {asked.id}
    webs.wires.shown.clear()
    return asked


@pytest.mark.goal("core.B17", part="mtls", broken_by="brokers_ask_in_their_own_name")
async def test_a_client_with_a_certificate_is_named_to_other_brokers(webs: Webs) -> None:
    asked = await partitions_elsewhere(webs)
    guard(webs, asked, proxies=(BROKER,))
    ended = await webs.ask(asked, "DELETE", f"{TOPICS}/p/subscription/s")
    assert ended.status == 204, ended.body
    assert set(webs.wires.shown) == {(None, CLIENT)}


@pytest.mark.goal("core.B18", part="endpoints", broken_by="brokers_ask_in_their_own_name")
async def test_without_a_way_to_say_who_it_is_a_client_gets_nothing_by_the_brokers_role(
    webs: Webs,
) -> None:
    asked = await partitions_elsewhere(webs)
    guard(webs, asked, proxies=())
    refused = await webs.ask(asked, "DELETE", f"{TOPICS}/p/subscription/s")
    assert refused.status == 403
    assert "is no proxy and may not speak for others" in json.loads(refused.body)["reason"]


@pytest.mark.parametrize("role", UNSPEAKABLE)
async def test_a_role_that_no_header_can_name_is_not_taken_for_another(
    webs: Webs, role: str
) -> None:
    asked = await partitions_elsewhere(webs)
    guard(webs, asked, client=role, proxies=(BROKER,))
    refused = await webs.ask(asked, "DELETE", f"{TOPICS}/p/subscription/s")
    assert refused.status == 412, refused.body
    assert "cannot be named to another broker" in json.loads(refused.body)["reason"]
    assert not webs.wires.shown


async def test_a_client_with_a_token_shows_it_everywhere(webs: Webs) -> None:
    asked = await partitions_elsewhere(webs)
    guard(webs, asked, proxies=())
    app = webs.wires.apps[int(asked.url.rpartition(":")[2])]
    path = f"{TOPICS}/p/subscription/s"
    ended = await call(app, path, method="DELETE", headers={"Authorization": "by-token"})
    assert ended.status == 204, ended.body
    assert set(webs.wires.shown) == {("by-token", None)}
