"""The example of the SDK makes every public call, and does what it says on a server of ours."""

import ast
import asyncio
import importlib.util
import inspect
from pathlib import Path

import pytest

from anabranch.client import Client, Consumer, Producer, Reader
from anabranch.testing.servers import anabranch_standalone

EXAMPLE = Path(__file__).parents[2] / "examples" / "asyncio_sdk.py"
PUBLIC = {
    Client: {"close", "connect", "consumer", "producer", "reader"},
    Producer: {"close", "flush", "send", "send_soon"},
    Consumer: {
        "acknowledge",
        "close",
        "last_message_id",
        "negative_acknowledge",
        "receive",
        "receive_many",
        "redeliver",
        "seek",
        "unsubscribe",
    },
    Reader: {"close", "has_message_available", "read_next", "seek"},
}
BETWEEN_MODULES = {
    Client: {"connection_at", "connection_for", "forget", "new_id"},
    Producer: {
        "attach", "detach", "gave_up", "on_connection_lost", "on_receipt", "on_send_error",
        "on_writable",
    },
    Consumer: {
        "attach", "detach", "gave_up", "on_connection_lost", "on_message", "on_writable",
        "place_to_begin",
    },
    Reader: set[str](),
}  # fmt: skip
"""What parts of the SDK say to each other."""


def methods_of(cls: type) -> set[str]:
    return {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, classmethod))
    }


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_every_public_call_is_known_and_in_the_example(cls: type) -> None:
    assert methods_of(cls) == PUBLIC[cls] | BETWEEN_MODULES[cls]
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(EXAMPLE.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called >= PUBLIC[cls]
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
            await example.main(server.service_url, "persistent://public/default/example")
    assert capsys.readouterr().out.splitlines()[-1] == "read 100 messages in order"
