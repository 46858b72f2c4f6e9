"""Every command of the wire with every role: no row is left out, and numbers are one's own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from test_access_on_the_wire import ASKED, MAY, ROLES, Guarded, code_in, guarded
from wire_peer import Wire

from anabranch.broker.command_rights import COMMAND_RIGHTS
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.policies import TenantInfo, encode
from anabranch.wire import AckedId, Command, Message, ServerError, ack, flow, replies, requests
from anabranch.wire import encode as framed

__all__ = ["guarded"]
Kind = BaseCommand.Type


def close_watch() -> BaseCommand:
    command = BaseCommand(type=Kind.WATCH_TOPIC_LIST_CLOSE)
    command.watchTopicListClose.request_id = 20
    command.watchTopicListClose.watcher_id = 1
    return command


GREETING = {Kind.CONNECT}
ALIVE = {Kind.PING, Kind.PONG, Kind.AUTH_RESPONSE}
SAID_OF_ONES_OWN: dict[int, Callable[[], bytes]] = {
    Kind.SEND: lambda: b"",  # by `Wire.publish`
    Kind.CLOSE_PRODUCER: lambda: framed(requests.close_producer(1, 20)),
    Kind.ACK: lambda: ack(1, 0, [AckedId(0, 0, None, None)], 20),
    Kind.FLOW: lambda: flow(1, 10),
    Kind.REDELIVER_UNACKNOWLEDGED_MESSAGES: lambda: framed(requests.redeliver(1)),
    Kind.UNSUBSCRIBE: lambda: framed(requests.unsubscribe(1, 20)),
    Kind.SEEK: lambda: framed(requests.seek_to_time(1, 20, 1)),
    Kind.GET_LAST_MESSAGE_ID: lambda: framed(requests.last_message_id(1, 20)),
    Kind.CONSUMER_STATS: lambda: framed(requests.consumer_stats(1, 20)),
    Kind.CLOSE_CONSUMER: lambda: framed(requests.close_consumer(1, 20)),
    Kind.WATCH_TOPIC_LIST_CLOSE: lambda: framed(close_watch()),
}
"""About a producer, consumer or watcher that the connection has opened itself."""
OF_COORDINATORS = {
    Kind.NEW_TXN, Kind.ADD_PARTITION_TO_TXN, Kind.ADD_SUBSCRIPTION_TO_TXN, Kind.END_TXN,
    Kind.TC_CLIENT_CONNECT_REQUEST, Kind.END_TXN_ON_PARTITION, Kind.END_TXN_ON_SUBSCRIPTION,
}  # fmt: skip
SAID_BY_SERVERS = {
    Kind.CONNECTED, Kind.SEND_RECEIPT, Kind.SEND_ERROR, Kind.MESSAGE, Kind.SUCCESS, Kind.ERROR,
    Kind.PRODUCER_SUCCESS, Kind.PARTITIONED_METADATA_RESPONSE, Kind.LOOKUP_RESPONSE,
    Kind.CONSUMER_STATS_RESPONSE, Kind.REACHED_END_OF_TOPIC, Kind.GET_LAST_MESSAGE_ID_RESPONSE,
    Kind.ACTIVE_CONSUMER_CHANGE, Kind.GET_TOPICS_OF_NAMESPACE_RESPONSE, Kind.GET_SCHEMA_RESPONSE,
    Kind.AUTH_CHALLENGE, Kind.ACK_RESPONSE, Kind.GET_OR_CREATE_SCHEMA_RESPONSE,
    Kind.NEW_TXN_RESPONSE, Kind.ADD_PARTITION_TO_TXN_RESPONSE,
    Kind.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, Kind.END_TXN_RESPONSE,
    Kind.END_TXN_ON_PARTITION_RESPONSE, Kind.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    Kind.TC_CLIENT_CONNECT_RESPONSE, Kind.WATCH_TOPIC_LIST_SUCCESS, Kind.WATCH_TOPIC_UPDATE,
    Kind.TOPIC_MIGRATED,
}  # fmt: skip
GROUPS = (
    GREETING, ALIVE, set(ASKED), set(SAID_OF_ONES_OWN), OF_COORDINATORS, SAID_BY_SERVERS,
)  # fmt: skip


def filled(message: Any) -> Any:
    """Give a message all it needs to be sent."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.message_type is not None:
            filled(getattr(message, field.name)).SetInParent()
        elif field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values[0].number)
        else:
            kinds = {field.CPPTYPE_STRING: b"x" if field.type == field.TYPE_BYTES else "x"}
            setattr(message, field.name, kinds.get(field.cpp_type, 1))
    return message


def bare(kind: int) -> BaseCommand:
    """A command of a kind with what it needs and no more."""
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    body = getattr(command, BaseCommand.DESCRIPTOR.fields_by_number[kind].name)
    filled(body).SetInParent()
    return command


async def told(wire: Wire) -> list[Command]:
    """Everything that a peer is told by now."""
    for _ in range(50):
        await asyncio.sleep(0)
    received = wire._received
    return [received.get_nowait() for _ in range(received.qsize())]


def send(wire: Wire, kind: int) -> None:
    """Send a command about what has the number 1."""
    if kind == Kind.SEND:
        wire.publish(1, b"2")
    elif kind in ASKED:
        wire.send(ASKED[kind]())
    elif kind in SAID_OF_ONES_OWN:
        wire.session.data_received(SAID_OF_ONES_OWN[kind]())
    else:
        wire.send(bare(kind))


class Owner:
    """A superuser with a producer, a consumer that holds a message, and a watcher."""

    def __init__(self, wire: Wire, guarded: Guarded) -> None:
        self.wire = wire
        (self.topic,) = guarded.broker.topics.all()

    @classmethod
    async def of(cls, guarded: Guarded) -> "Owner":
        wire = await guarded.client("root")
        await wire.ask(ASKED[Kind.WATCH_TOPIC_LIST]())
        await wire.subscribe(sub_type=1)
        await wire.producer()
        await wire.published(1)
        wire.session.data_received(flow(1, 1))
        owner = cls(wire, guarded)
        assert any(type(each) is Message for each in await told(wire))
        return owner

    async def assert_has_everything(self) -> None:
        """Nobody else has changed anything, and the owner was told nothing."""
        assert not await told(self.wire)
        assert not self.wire.closed
        assert self.topic.ledger.entry_count == 1
        assert list(self.wire.session.producers) == list(self.wire.session.consumers) == [1]
        ((consumer, subscription, _),) = self.wire.session.consumers.values()
        assert self.topic.subscriptions == {"s": subscription}
        assert (subscription.cursor.backlog(), consumer.unacked_messages) == (1, 1)
        assert (await self.wire.ask(replies.ping())).type == Kind.PONG


def test_every_command_of_the_wire_is_somebodys() -> None:
    everything = [kind for group in GROUPS for kind in group]
    assert sorted(everything) == sorted(Kind.values())
    served = GREETING | ALIVE | set(ASKED) | set(SAID_OF_ONES_OWN)
    assert set(COMMAND_RIGHTS) == served


@pytest.mark.goal("core.B18", part="commands", broken_by="handshake_is_optional")
async def test_strangers_may_say_nothing_but_who_they_are(guarded: Guarded) -> None:
    for kind in sorted(set(Kind.values()) - GREETING):
        wire = Wire(guarded.broker)
        send(wire, kind)
        assert wire.closed, Kind.Name(kind)
        assert all(each.type == Kind.ERROR for each in await told(wire)), Kind.Name(kind)
    assert guarded.broker.topics.all() == []


@pytest.mark.goal("core.B18", part="commands", broken_by="consumers_of_others_are_found")
@pytest.mark.parametrize("kind", SAID_OF_ONES_OWN, ids=Kind.Name)
async def test_a_number_is_what_the_connection_itself_has_opened(
    guarded: Guarded, kind: int
) -> None:
    owner = await Owner.of(guarded)
    for role in ROLES:
        wire = await guarded.client(role)
        send(wire, kind)
        answers = await told(wire)
        assert not any(type(each) is Message for each in answers), role
        await owner.assert_has_everything()


@pytest.mark.goal("core.B18", part="commands", broken_by="nonsense_is_passed_over")
@pytest.mark.parametrize("role", ROLES)
async def test_what_is_no_clients_to_say_is_nobodys(guarded: Guarded, role: str) -> None:
    owner = await Owner.of(guarded)
    for kind in sorted(OF_COORDINATORS | SAID_BY_SERVERS):
        wire = await guarded.client(role)
        send(wire, kind)
        answers = await told(wire)
        assert len(answers) == 1, Kind.Name(kind)
        assert wire.closed or code_in(answers[0]) == ServerError.NotAllowedError, Kind.Name(kind)
        assert wire.closed or kind in OF_COORDINATORS, Kind.Name(kind)
        await owner.assert_has_everything()


@pytest.mark.goal("core.B18", part="commands", broken_by="proxies_are_enough")
@pytest.mark.parametrize("kind", ASKED, ids=Kind.Name)
async def test_every_command_through_a_proxy(guarded: Guarded, kind: int) -> None:
    """A proxy that may do everything in the tenant adds nothing to whom it asks for."""
    tenant = TenantInfo(admin_roles=("admin", "proxy"), allowed_clusters=("standalone",))
    await guarded.metadata.put("/admin/policies/public", encode(tenant))
    for role in ROLES:
        wire = await guarded.client("proxy", original_principal=role)
        code = code_in(await wire.ask(ASKED[kind]()))
        assert (code == ServerError.AuthorizationError) == (role not in MAY[kind]), (role, code)
    # Nor does a superuser lend anything to a proxy that may nothing.
    tenant = TenantInfo(admin_roles=("admin",), allowed_clusters=("standalone",))
    await guarded.metadata.put("/admin/policies/public", encode(tenant))
    for role in ROLES:
        wire = await guarded.client("proxy", original_principal=role)
        code = code_in(await wire.ask(ASKED[kind]()))
        assert code == ServerError.AuthorizationError, role
