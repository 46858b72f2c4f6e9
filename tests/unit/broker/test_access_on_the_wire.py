"""Who may come in by the wire, what each role may ask for, and how credentials are renewed."""

import asyncio

import pytest
from wire_peer import TOPIC, Wire, eventually, memory_stores, running_broker

from anabranch.broker import requests as served_requests
from anabranch.broker.access import REFRESH, Guard
from anabranch.broker.command_rights import COMMAND_RIGHTS
from anabranch.broker.grants import StoredGrants
from anabranch.errors import NotAuthenticated
from anabranch.generated.pulsar_api_pb2 import BaseCommand, CommandGetTopicsOfNamespace
from anabranch.policies import NamespacePolicies, TenantInfo, encode
from anabranch.policies.namespaces import AuthPolicies
from anabranch.security import Authentication, Authorization, Evidence, Identity
from anabranch.wire import FeatureFlags, ServerError, requests

GRANTED = {
    "producer": ("produce",),
    "consumer": ("consume",),
}
ROLES = ("root", "admin", "producer", "consumer", "stranger", "foreigner")
"""The last administers another tenant."""


class Names:
    """A method of authentication that believes everything but the word "liar"."""

    name = "names"

    def __init__(self):
        self.expires_ms = None

    def identify(self, evidence):
        role = evidence.data.decode()
        if role == "liar":
            raise NotAuthenticated("a liar")
        return Identity(role, self.name, self.expires_ms)


class Guarded:
    """A broker behind a guard, and clients with roles."""

    def __init__(self, broker, names, metadata):
        self.broker = broker
        self.names = names
        self.metadata = metadata

    async def greet(self, role, *, method="names", **options):
        wire = Wire(self.broker)
        command = requests.connect("test", auth_method=method, auth_data=role.encode())
        for name, value in options.items():
            setattr(command.connect, name, value)
        command.connect.feature_flags.MergeFrom(FeatureFlags(supports_auth_refresh=True))
        return wire, await wire.ask(command)

    async def client(self, role, **options):
        wire, answer = await self.greet(role, **options)
        assert answer.type == BaseCommand.CONNECTED, answer
        return wire


@pytest.fixture
async def guarded():
    stores = await memory_stores()
    metadata, _ = stores
    names = Names()
    authorization = Authorization(
        StoredGrants(metadata), superuser_roles=["root"], proxy_roles=["proxy"]
    )
    guard = Guard(Authentication([names]), authorization, refresh_s=0.02)
    tenant = TenantInfo(admin_roles=("admin",), allowed_clusters=("standalone",))
    await metadata.put("/admin/policies/public", encode(tenant))
    policies = NamespacePolicies(auth_policies=AuthPolicies(namespace_auth=GRANTED))
    await metadata.put("/admin/policies/public/default", encode(policies))
    elsewhere = TenantInfo(admin_roles=("foreigner",), allowed_clusters=("standalone",))
    await metadata.put("/admin/policies/elsewhere", encode(elsewhere))
    async with running_broker(stores=stores, guard=guard) as broker:
        yield Guarded(broker, names, metadata)
    await metadata.close()


async def test_only_the_known_come_in(guarded):
    wire, answer = await guarded.greet("liar")
    assert answer.type == BaseCommand.ERROR
    assert answer.error.error == ServerError.AuthenticationError
    await asyncio.sleep(0)
    assert wire.closed
    wire, answer = await guarded.greet("root", method="unheard-of")
    assert answer.error.error == ServerError.AuthenticationError
    wire = Wire(guarded.broker)
    wire.send(requests.lookup(TOPIC, 1))
    assert wire.closed


def topics_of_namespace():
    return BaseCommand(
        type=BaseCommand.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=CommandGetTopicsOfNamespace(request_id=5, namespace="public/default"),
    )


def watched_topics():
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    command.watchTopicList.request_id = 8
    command.watchTopicList.watcher_id = 1
    command.watchTopicList.namespace = "public/default"
    command.watchTopicList.topics_pattern = "persistent://public/default/.*"
    return command


def get_or_create():
    command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
    command.getOrCreateSchema.topic = TOPIC
    command.getOrCreateSchema.request_id = 7
    command.getOrCreateSchema.schema.name = "s"
    command.getOrCreateSchema.schema.schema_data = b""
    command.getOrCreateSchema.schema.type = 1
    return command


ASKED = {
    BaseCommand.LOOKUP: lambda: requests.lookup(TOPIC, 1),
    BaseCommand.PARTITIONED_METADATA: lambda: requests.partition_metadata(TOPIC, 2),
    BaseCommand.PRODUCER: lambda: requests.producer(TOPIC, 1, 3),
    BaseCommand.SUBSCRIBE: lambda: requests.subscribe(TOPIC, "s", 1, 1, 4),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: topics_of_namespace,
    BaseCommand.GET_SCHEMA: lambda: requests.get_schema(TOPIC, 6),
    BaseCommand.GET_OR_CREATE_SCHEMA: get_or_create,
    BaseCommand.WATCH_TOPIC_LIST: watched_topics,
}
EVERYBODY = {"root", "admin", "producer", "consumer"}
MAY = {
    BaseCommand.LOOKUP: EVERYBODY,
    BaseCommand.PARTITIONED_METADATA: EVERYBODY,
    BaseCommand.PRODUCER: {"root", "admin", "producer"},
    BaseCommand.SUBSCRIBE: {"root", "admin", "consumer"},
    BaseCommand.GET_TOPICS_OF_NAMESPACE: EVERYBODY,
    BaseCommand.GET_SCHEMA: EVERYBODY,
    BaseCommand.GET_OR_CREATE_SCHEMA: {"root", "admin", "producer"},
    BaseCommand.WATCH_TOPIC_LIST: EVERYBODY,
}


def code_in(answer):
    """The error in any kind of answer; None if it is no refusal."""
    for field, inner in answer.ListFields():
        if field.name == "error":
            return inner.error
        if field.message_type is not None:
            for name in ("error", "error_code"):
                if name in inner.DESCRIPTOR.fields_by_name and inner.HasField(name):
                    return getattr(inner, name)
    return None


@pytest.mark.goal("core.B18", part="commands", broken_by="commands_are_not_checked")
@pytest.mark.parametrize("kind", ASKED, ids=BaseCommand.Type.Name)
async def test_every_command_with_every_role(guarded, kind):
    for role in ROLES:
        wire = await guarded.client(role)
        code = code_in(await wire.ask(ASKED[kind]()))
        refused = code == ServerError.AuthorizationError
        assert refused == (role not in MAY[kind]), (role, code)


async def test_whoever_asks_for_partitions_learns_that_a_tenant_is_missing(guarded):
    wire = await guarded.client("stranger")
    missing = "persistent://nobody/here/t"
    code = code_in(await wire.ask(requests.partition_metadata(missing, 1)))
    assert code == ServerError.TopicNotFound
    # As in Pulsar: of a namespace that is missing, and by other commands, nothing is learnt.
    code = code_in(await wire.ask(requests.partition_metadata("persistent://public/none/t", 2)))
    assert code == ServerError.AuthorizationError
    code = code_in(await wire.ask(requests.lookup(missing, 3)))
    assert code == ServerError.AuthorizationError


@pytest.mark.goal("core.B18", part="commands", broken_by="unknown_commands_are_allowed")
async def test_every_command_has_a_row(guarded):
    served = set(served_requests._IMMEDIATE) | set(served_requests._REQUESTS)
    assert served <= set(COMMAND_RIGHTS)
    asked = {kind for kind, row in COMMAND_RIGHTS.items() if row.resource is not None}
    assert asked == set(ASKED) == set(MAY)
    heard = []
    guarded.broker.extensions.serve(
        BaseCommand.TC_CLIENT_CONNECT_REQUEST, lambda _, command: heard.append(command)
    )
    wire = await guarded.client("admin")
    command = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST)
    command.tcClientConnectRequest.request_id = 9
    command.tcClientConnectRequest.tc_id = 0
    await wire.ask(command)
    assert not heard


async def test_a_proxy_is_asked_for_whom_it_asks(guarded):
    wire, answer = await guarded.greet("proxy")
    assert answer.error.error == ServerError.AuthorizationError
    wire = await guarded.client("proxy", original_principal="producer")
    # The proxy itself was granted nothing.
    code = code_in(await wire.ask(requests.producer(TOPIC, 1, 3)))
    assert code == ServerError.AuthorizationError
    wire, answer = await guarded.greet("producer", original_principal="root")
    assert answer.error.error == ServerError.AuthorizationError
    forged = {"original_principal": "root", "original_auth_method": "names"}
    wire, answer = await guarded.greet("proxy", original_auth_data="producer", **forged)
    assert answer.error.error == ServerError.AuthenticationError


@pytest.mark.goal("core.B17", part="refresh", broken_by="credentials_last_forever")
async def test_expired_credentials_are_asked_for_again(guarded):
    guarded.names.expires_ms = 1
    wire = await guarded.client("producer")
    challenge = await wire.next()
    assert challenge.type == BaseCommand.AUTH_CHALLENGE
    assert challenge.authChallenge.challenge.auth_data == REFRESH
    guarded.names.expires_ms = None
    wire.send(requests.auth_response("test", method="names", data=b"producer"))
    await asyncio.sleep(0.1)
    assert not wire.closed
    await wire.quiet()


@pytest.mark.parametrize("answer", [None, b"somebody-else", b"liar"])
async def test_a_client_without_fresh_credentials_of_its_own_is_dropped(guarded, answer):
    guarded.names.expires_ms = 1
    wire = await guarded.client("producer")
    assert (await wire.next()).type == BaseCommand.AUTH_CHALLENGE
    if answer is not None:
        wire.send(requests.auth_response("test", method="names", data=answer))
    await eventually(lambda: wire.closed)


@pytest.mark.goal("core.S6", part="wire", broken_by="names_may_be_disguised")
async def test_names_that_hide_others_are_refused_and_the_connection_lives(guarded):
    wire = await guarded.client("root")
    for number, local in enumerate(("..", "a%2Fb", "%252e", "a/../b"), start=10):
        topic = f"persistent://public/default/{local}"
        for command in (
            requests.lookup(topic, number),
            requests.partition_metadata(topic, number),
            requests.producer(topic, number, number),
            requests.subscribe(topic, "s", 1, number, number),
        ):
            assert code_in(await wire.ask(command)) == ServerError.InvalidTopicName
    assert code_in(await wire.ask(requests.lookup(TOPIC, 99))) is None


@pytest.mark.goal("core.S5", part="wire", broken_by="refusals_repeat_what_was_shown")
async def test_what_a_client_has_shown_is_not_repeated(guarded, caplog):
    _, answer = await guarded.greet("canary-secret", method="unheard-of")
    assert "canary-secret" not in str(answer)
    assert "canary-secret" not in caplog.text
    assert "canary-secret" not in repr(Evidence(b"canary-secret"))


@pytest.mark.goal("core.B18", part="commands", broken_by="initial_subscriptions_are_not_asked_for")
async def test_an_initial_subscription_takes_the_right_to_consume(guarded):
    asked = requests.producer(TOPIC, 1, 2, initial_subscription="s")
    refused = await (await guarded.client("producer")).ask(asked)
    assert refused.error.error == ServerError.AuthorizationError
    assert guarded.broker.topics.all() == [], "nothing was changed"
    allowed = await (await guarded.client("admin")).ask(asked)
    assert allowed.type == BaseCommand.PRODUCER_SUCCESS
