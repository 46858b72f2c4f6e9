"""The longest callbacks of the event loop of a server with 10,000 topics, in milliseconds of CPU.

In one process, on memory stores and asyncio's own loop, so that each callback can be watched. The
figures are CPU of the loop's thread: a machine that is busy with other things adds little.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Final, cast

from anabranch.broker import unloading
from anabranch.broker.session import Session
from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.ids import TopicName
from anabranch.ownership import Bundle
from anabranch.ownership.bundles import HIGHEST, LOWEST
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.short_collections import ShortCollections
from anabranch.testing.loop_callbacks import callback_cpu_ms
from anabranch.testing.web_call import call

TOPICS: Final = 10_000
WANTED_MS_MAX: Final = 20
_SETTLE_S: Final = 1.0
_WATCHERS: Final = 20
_PATTERNS: Final = 5
_NEW_TOPICS: Final = 500
_EVERYTHING: Final = Bundle("public/default", LOWEST, HIGHEST)
_RETENTION: Final = b'{"retentionTimeInMinutes": 7, "retentionSizeInMB": 1}'
_NAMESPACE: Final = "/admin/v2/namespaces/public/default"
_TOPICS: Final = "/admin/v2/persistent/public/default"


async def _open_topics(server: Standalone) -> None:
    for number in range(TOPICS):
        name = TopicName.parse(f"persistent://public/default/t-{number:05}")
        topic = await server.broker.topics.open(name, create=True)
        await topic.subscribe("s", initial="earliest", properties={})


def _ask(
    server: Standalone, path: str, method: str = "GET", body: bytes = b""
) -> Awaitable[object]:
    headers = {"Content-Type": "application/json"}
    return call(
        server.web_app, path, method=method, body=body, headers=headers, on_body=_throw_away
    )


def _throw_away(_: bytes) -> None:
    """A client would read it in a process of its own."""


class _Hearer:
    """The session of a client that watches topics, as far as its watcher needs one."""

    def __init__(self) -> None:
        self.closed = False
        self.heard = 0

    def reply(self, command: BaseCommand) -> None:
        self.heard += len(command.watchTopicUpdate.new_topics)


async def _watch(server: Standalone) -> None:
    clients = [_Hearer() for _ in range(_WATCHERS)]
    watchers = server.broker.topic_watchers
    for number, client in enumerate(clients):
        # Few of them have a pattern of their own; all of the topics match each of them.
        pattern = f"public/default/[t-{chr(ord('u') + number % _PATTERNS)}]-.*"
        await watchers.add(cast("Session", client), 1, "public/default", pattern)
    for number in range(_NEW_TOPICS):
        name = TopicName.parse(f"persistent://public/default/t-new-{number:05}")
        await server.broker.topics.open(name, create=True)
    while any(client.heard < _NEW_TOPICS for client in clients):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    for client in clients:
        client.closed = True


async def _unload(server: Standalone) -> None:
    await unloading.unload(server.broker, _EVERYTHING)
    assert not server.broker.topics.all()


async def _lose(server: Standalone) -> None:
    server.broker.ownership.on_lost(_EVERYTHING)
    while server.broker.topics.all():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


ACTIONS: Final[dict[str, Callable[[Standalone], Awaitable[object]]]] = {
    "open all topics": _open_topics,
    "figures": lambda server: _ask(server, "/metrics"),
    "statistics of a topic": lambda server: _ask(server, f"{_TOPICS}/t-00001/stats"),
    "list of topics": lambda server: _ask(server, _TOPICS),
    "upkeep": lambda server: server.broker.upkeep.look_after_all(),
    "changed policies": lambda server: _ask(server, f"{_NAMESPACE}/retention", "POST", _RETENTION),
    "watchers": _watch,
    "unload": _unload,
    "open all topics again": _open_topics,
    "lost bundle": _lose,
}


async def _act(action: Callable[[Standalone], Awaitable[object]], server: Standalone) -> None:
    await action(server)


async def _measure() -> None:
    settings = Settings(metadata_url="memory:", ledgers_url="memory:", port=0, web_port=0)
    server = Standalone(real_runtime(), settings)
    await server.start()
    collections = ShortCollections(lambda: server.broker.ended)
    collections.start()
    try:
        for name, action in ACTIONS.items():
            with callback_cpu_ms() as work:
                await asyncio.create_task(_act(action, server))
                await asyncio.sleep(_SETTLE_S)
            (callback, most_ms), *_ = work.longest(1)
            print(f"{name.ljust(24)}{most_ms:9.1f} ms  {callback}", flush=True)
        begun_s = time.thread_time()
        gc.collect()
        print(f"{'full collection'.ljust(24)}{(time.thread_time() - begun_s) * 1000:9.1f} ms")
    finally:
        collections.stop()
        await server.close()


def run() -> None:
    """Print the longest callback of each action, and how long a full collection takes."""
    print(f"the longest callback with {TOPICS:,} topics; wanted: at most {WANTED_MS_MAX} ms")
    asyncio.run(_measure())
