"""The example of the SDK makes every public call, and does what it says on a server of ours."""

import ast
import asyncio
import importlib.util
import inspect
from pathlib import Path

import pytest

from anabranch.client import Client, Consumer, Producer, Reader
from anabranch.client.admin.client import AdminClient
from anabranch.client.admin.namespaces import Namespaces
from anabranch.client.admin.policy_calls import PolicyCalls
from anabranch.client.admin.schemas import Schemas
from anabranch.client.admin.subscriptions import Subscriptions
from anabranch.client.admin.tenants import Clusters, Tenants
from anabranch.client.admin.topics import Topics
from anabranch.testing.servers import anabranch_standalone

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "asyncio_sdk.py"
NOUNS = (AdminClient, Clusters, Tenants, Namespaces, PolicyCalls, Topics, Subscriptions, Schemas)
PUBLIC = {
    Client: {"close", "connect", "consumer", "partitions", "producer", "reader", "schema"},
    Producer: {"close", "flush", "send", "send_soon"},
    Consumer: {
        "acknowledge",
        "close",
        "last_message_id",
        "negative_acknowledge",
        "receive",
        "receive_many",
        "reconsume_later",
        "redeliver",
        "seek",
        "unsubscribe",
    },
    Reader: {"close", "has_message_available", "read_next", "seek"},
}
BETWEEN_MODULES = {
    Client: {"forget", "new_id", "start"},
    Producer: set[str](),
    Consumer: set[str](),
    Reader: {"open"},
}
"""What parts of the SDK say to each other."""


def methods_of(cls: type) -> set[str]:
    return {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, classmethod))
    }


def calls_in(file: Path) -> set[str]:
    return {
        node.func.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_every_call_of_the_admin_client_is_in_its_example(noun: type) -> None:
    assert calls_in(EXAMPLES / "administer.py") >= methods_of(noun)
    for name in methods_of(noun):
        assert inspect.getdoc(getattr(noun, name)), f"{noun.__name__}.{name} says what it does"


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_every_public_call_is_known_and_in_the_example(cls: type) -> None:
    assert methods_of(cls) == PUBLIC[cls] | BETWEEN_MODULES[cls]
    assert calls_in(EXAMPLE) >= PUBLIC[cls]
    for name in PUBLIC[cls]:
        assert inspect.getdoc(getattr(cls, name)), f"{cls.__name__}.{name} says what it does"


@pytest.mark.goal("core.B23", part="examples", broken_by="sdk_seek_stays")
async def test_the_example_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.spec_from_file_location("asyncio_sdk_example", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)
    with anabranch_standalone() as server:
        async with asyncio.timeout(20):
            await example.main(server.service_url, server.web_url, "example")
    assert capsys.readouterr().out.splitlines()[-1] == "sent 6 messages to 3 partitions"
