"""The metadata store's contract, shown on a store that another event loop's client reaches by TCP.

The server stands on a memory store here, so that the suite is about the protocol; durability is
shown elsewhere.
"""

from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}")


class OnServed:
    @pytest.fixture
    async def base(self) -> AsyncIterator[MemoryStore]:
        base = MemoryStore(real_runtime().clock)
        yield base
        await base.close()

    @pytest.fixture
    async def server(self, base: MemoryStore) -> AsyncIterator[MetadataServer]:
        server = MetadataServer(real_runtime(), base, on_failure=failed)
        await server.start("127.0.0.1", 0)
        yield server
        await server.close()

    @pytest.fixture
    async def store(self, server: MetadataServer) -> AsyncIterator[MetadataStore]:
        store = await open_store(f"anabranch://127.0.0.1:{server.port}", real_runtime())
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, server: MetadataServer) -> AsyncIterator[MetadataStore]:
        other = await open_store(f"anabranch://127.0.0.1:{server.port}", real_runtime())
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: MetadataStore) -> Kill:
        return lambda victim: store.end_session(victim.session)  # type: ignore[attr-defined]

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M2", part="served")
class TestServedConditionalWrites(OnServed, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="served")
class TestServedDeletes(OnServed, Deletes):
    pass


@pytest.mark.goal("core.M1", part="served")
class TestServedHostileInput(OnServed, HostileInput):
    pass


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M7", part="served")
class TestServedScanAndChildren(OnServed, ScanAndChildren):
    pass


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M6", part="served")
class TestServedBatching(OnServed, Batching):
    pass


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M5", part="served")
class TestServedWatching(OnServed, Watching):
    pass


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M3", part="served")
class TestServedSessions(OnServed, Sessions):
    pass


@pytest.mark.goal("core.M1", part="served")
@pytest.mark.goal("core.M4", part="served")
class TestServedSequences(OnServed, Sequences):
    pass


@pytest.mark.goal("core.M1", part="served")
class TestServedGuards(OnServed, Guards):
    pass


@pytest.mark.goal("core.M1", part="served")
class TestServedIndexes(OnServed, Indexes):
    pass


@pytest.mark.goal("core.M1", part="served")
class TestServedCopies(OnServed, Copies):
    pass
