"""A ledger is recovered while its writer goes on, in the one order that shows a missing fence.

Of BookKeeper's two defects that model checking found, the first needs each of three bookies to be
late in a way of its own. Some seeds of the scenario come to it; here it is told step by step. All
other orders are the walks', in `test_bookkeeper_protocol_walks.py`.
"""

import asyncio

import pytest
from bookie_stories import Bench, append, play

from anabranch.errors import Fenced
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.testing.bookies.server import Treat

SETTINGS = BookKeeperSettings(request_timeout_s=20.0, explicit_lac_s=0.0)


def slow(*, adds_s: float = 0.0, fence_s: float = 0.0, reads_s: float = 0.0) -> Treat:
    def treat(_: str, request: pb.Request) -> float:
        if request.HasField("add"):
            return adds_s
        if request.HasField("read"):
            return fence_s if request.read.entry_id < 0 else reads_s
        return 0.0

    return treat


@pytest.mark.goal("core.L4", part="simulation", broken_by="recovery_reads_do_not_fence")
def test_an_entry_behind_the_end_is_never_acknowledged() -> None:
    results: list[Exception | None] = []

    async def story(bench: Bench, store: BookKeeperLedgerStore) -> None:
        writer = await store.create(7)
        await append(writer, b"a")
        has, late, last = bench.bookies
        has.treat = slow(reads_s=12.0)
        late.treat = slow(adds_s=8.0, fence_s=12.0)
        last.treat = slow(adds_s=12.0)
        sent_s = bench.world.now_s()
        writer.append(b"b", lambda _, error: results.append(error))
        await bench.until_has(has, 7, 1)
        other = await BookKeeperLedgerStore.open_cluster(bench.runtime, bench.metadata, SETTINGS)
        reader = await other.open(7)
        assert bench.world.now_s() < sent_s + 8.0, "the story went another way"
        assert not bench.has(late, 7, 1)
        assert reader.last_entry_id == 0, "nobody who answered had it"
        # By now it has come to the bookie that was not asked for its last entry.
        await asyncio.sleep(15.0)
        assert isinstance(results[0], Fenced), "what is cut off is not acknowledged"
        await other.close()

    play(SETTINGS, 3, story)
    assert len(results) == 1
