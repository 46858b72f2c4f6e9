"""Entries go to the bookies as they come: none waits here for the answer to another one."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch import limits
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.bookies import loopback_cluster
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster, until
from anabranch.testing.bookies.server import Answer
from anabranch.testing.bookies.shelves import Verdict

ENTRIES = limits.PENDING_PUBLISHES_PER_CONNECTION_MAX
COPIES = 2
PATIENT = replace(SETTINGS, write_quorum=COPIES, ack_quorum=COPIES, request_timeout_s=60.0)


class Slow(LoopbackBookie):
    """A bookie that answers when it is told to."""

    def __init__(self, runtime: Runtime, metadata: MetadataStore) -> None:
        super().__init__(runtime, metadata)
        self.held: list[tuple[Verdict, Answer]] = []

    def write(self, verdict: Verdict, answer: Answer) -> None:
        """Keep the answer."""
        self.held.append((verdict, answer))

    def answer(self) -> None:
        """Answer everything."""
        for held in self.held:
            super().write(*held)
        self.held.clear()


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopbackCluster]:
    monkeypatch.setattr(loopback_cluster, "LoopbackBookie", Slow)
    cluster = LoopbackCluster()
    await cluster.more_bookies(3)
    yield cluster
    await cluster.end()


@pytest.mark.parametrize("entry_bytes", [100, 20_000], ids=["small", "more than sockets hold"])
async def test_as_many_entries_are_under_way_as_a_connection_may_publish(
    cluster: LoopbackCluster, entry_bytes: int
) -> None:
    writer = await (await cluster.store(PATIENT)).create(1)
    stored: list[int] = []

    def done(entry_id: int, error: Exception | None) -> None:
        assert error is None
        stored.append(entry_id)

    for _ in range(ENTRIES):
        writer.append(bytes(entry_bytes), done)
    slow = [bookie for bookie in cluster.bookies.values() if isinstance(bookie, Slow)]
    await until(lambda: sum(len(bookie.held) for bookie in slow) == COPIES * ENTRIES)
    assert stored == [], "nobody has answered yet"
    for bookie in slow:
        bookie.answer()
    await until(lambda: len(stored) == ENTRIES)
    assert stored == list(range(ENTRIES))
