"""The metadata store's contract, shown on every store that needs no server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching


class Local:
    """What the two stores that live in this process need besides `store`."""

    @pytest.fixture
    async def other(self, store: LocalHandle) -> AsyncIterator[MetadataStore]:
        other = await store.handle()
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: LocalHandle) -> Kill:
        return lambda victim: store.end_session(victim.session)

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


class OnMemory(Local):
    @pytest.fixture
    async def store(self) -> AsyncIterator[MetadataStore]:
        store = await open_store("memory:", real_runtime())
        yield store
        await store.close()


class OnEmbedded(Local):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = await open_store(f"embedded:{tmp_path}/store", real_runtime())
        yield store
        await store.close()


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M2", part="memory")
class TestMemoryConditionalWrites(OnMemory, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="memory")
class TestMemoryDeletes(OnMemory, Deletes):
    pass


@pytest.mark.goal("core.M1", part="memory")
class TestMemoryHostileInput(OnMemory, HostileInput):
    pass


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M7", part="memory")
class TestMemoryScanAndChildren(OnMemory, ScanAndChildren):
    pass


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M6", part="memory")
class TestMemoryBatching(OnMemory, Batching):
    pass


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M5", part="memory")
class TestMemoryWatching(OnMemory, Watching):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M2", part="embedded")
class TestEmbeddedConditionalWrites(OnEmbedded, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="embedded")
class TestEmbeddedDeletes(OnEmbedded, Deletes):
    pass


@pytest.mark.goal("core.M1", part="embedded")
class TestEmbeddedHostileInput(OnEmbedded, HostileInput):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M7", part="embedded")
class TestEmbeddedScanAndChildren(OnEmbedded, ScanAndChildren):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M6", part="embedded")
class TestEmbeddedBatching(OnEmbedded, Batching):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M5", part="embedded")
class TestEmbeddedWatching(OnEmbedded, Watching):
    pass


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M3", part="memory")
class TestMemorySessions(OnMemory, Sessions):
    pass


@pytest.mark.goal("core.M1", part="memory")
@pytest.mark.goal("core.M4", part="memory")
class TestMemorySequences(OnMemory, Sequences):
    pass


@pytest.mark.goal("core.M1", part="memory")
class TestMemoryGuards(OnMemory, Guards):
    pass


@pytest.mark.goal("core.M1", part="memory")
class TestMemoryIndexes(OnMemory, Indexes):
    pass


@pytest.mark.goal("core.M1", part="memory")
class TestMemoryCopies(OnMemory, Copies):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M3", part="embedded")
class TestEmbeddedSessions(OnEmbedded, Sessions):
    pass


@pytest.mark.goal("core.M1", part="embedded")
@pytest.mark.goal("core.M4", part="embedded")
class TestEmbeddedSequences(OnEmbedded, Sequences):
    pass


@pytest.mark.goal("core.M1", part="embedded")
class TestEmbeddedGuards(OnEmbedded, Guards):
    pass


@pytest.mark.goal("core.M1", part="embedded")
class TestEmbeddedIndexes(OnEmbedded, Indexes):
    pass


@pytest.mark.goal("core.M1", part="embedded")
class TestEmbeddedCopies(OnEmbedded, Copies):
    pass
