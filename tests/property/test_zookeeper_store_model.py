"""The store on a real ZooKeeper against a plain dictionary."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from test_metadata_store_model import SETTINGS, MetadataModel

from anabranch.metadata.factory import open_store
from anabranch.metadata.paths import name_of
from anabranch.metadata.store import MetadataStore, SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import zookeeper
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
_places = count(1)


class ZooKeeperModel(MetadataModel):
    """Every run has a chroot of its own."""

    history_is_whole = False  # nodes of one session go in one moment, and share a revision
    batches_in_order = False

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.servers = servers

    async def open(self) -> MetadataStore:
        url = f"zk:{self.servers}/model/{next(_places)}"
        return await open_store(url, real_runtime(), session_timeout_s=10)

    def validate(self) -> None:
        """There is nothing to look into."""

    def next_number(self, parent: str, path: str) -> int:
        # ZooKeeper counts other children, too: only never back.
        number = int(name_of(path).removeprefix("s-"))
        assert number >= self.nodes[parent].next_sequence
        return number

    async def end_session(self) -> None:
        events = self.store.session_events()
        await end_session(self.store)
        heard = []
        async with asyncio.timeout(10):
            while SessionEvent.SESSION_REESTABLISHED not in heard:
                heard.append(await anext(events))
        assert SessionEvent.SESSION_LOST in heard


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.servers


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M2", part="zookeeper")
def test_zookeeper_agrees_with_the_model(servers: str) -> None:
    run_state_machine_as_test(
        lambda: ZooKeeperModel(servers),
        settings=settings(SETTINGS, max_examples=12, stateful_step_count=25),
    )
