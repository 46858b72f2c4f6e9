"""The stores on a real ZooKeeper and a real Oxia against a plain dictionary.

The machine is the one that memory and embedded are driven by; see `test_metadata_store_model`.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from test_metadata_store_model import SETTINGS, MetadataModel

from anabranch.metadata.factory import open_store
from anabranch.metadata.paths import name_of
from anabranch.metadata.store import MetadataStore, SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.testing.oxia_wiping import wipe
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import Oxia, oxia
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
FEW: Final = settings(SETTINGS, max_examples=12, stateful_step_count=25)
_places = count(1)


class ServerModel(MetadataModel):
    """What is the same of stores on servers."""

    batches_in_order = False

    def validate(self) -> None:
        """There is nothing to look into."""

    def next_number(self, parent: str, path: str) -> int:
        # Numbers of other children, or of an earlier parent, may be passed over: only never back.
        number = int(name_of(path).removeprefix("s-"))
        assert number >= self.nodes[parent].next_sequence
        return number

    async def kill_session(self) -> None:
        """As if the server had not heard of the store for too long."""
        raise NotImplementedError

    async def end_session(self) -> None:
        events = self.store.session_events()
        await self.kill_session()
        heard = []
        async with asyncio.timeout(10):
            while SessionEvent.SESSION_REESTABLISHED not in heard:
                heard.append(await anext(events))
        assert SessionEvent.SESSION_LOST in heard


class ZooKeeperModel(ServerModel):
    """Every run has a chroot of its own."""

    history_is_whole = False  # nodes of one session go in one moment, and share a revision

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.servers = servers

    async def open(self) -> MetadataStore:
        url = f"zk:{self.servers}/model/{next(_places)}"
        return await open_store(url, real_runtime(), session_timeout_s=10)

    async def kill_session(self) -> None:
        await end_session(self.store)


class OxiaModel(ServerModel):
    """Every run begins with an empty server: Oxia has no chroot to keep runs apart."""

    def __init__(self, server: Oxia, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.server = server

    async def open(self) -> MetadataStore:
        await wipe(self.server)
        return await open_store(self.server.url, real_runtime(), session_timeout_s=2)

    async def kill_session(self) -> None:
        await self.store.end_session(self.store.session)


def runs_of(model: Callable[[], ServerModel]) -> int:
    """How many walks of the machine ended with what the dictionary says."""
    runs: list[ServerModel] = []

    def begun() -> ServerModel:
        runs.append(model())
        return runs[-1]

    run_state_machine_as_test(begun, settings=FEW)
    return len(runs)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.servers


@pytest.fixture
def one_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """grpc.aio serves one loop per process well, and many after another badly."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M2", part="zookeeper")
def test_zookeeper_agrees_with_the_model(servers: str) -> None:
    assert runs_of(lambda: ZooKeeperModel(servers)) >= FEW.max_examples


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M2", part="oxia")
@pytest.mark.parametrize("shards", [1, 3])
def test_oxia_agrees_with_the_model(shards: int, one_loop: asyncio.AbstractEventLoop) -> None:
    with oxia(shards) as server:
        assert runs_of(lambda: OxiaModel(server, one_loop)) >= FEW.max_examples
