"""The client of BookKeeper when there are fewer bookies than it wants: it waits, it does not spin.

A world in which time stands still while something runs on and on ends with an error by itself.
"""

import asyncio

import pytest
from bookie_stories import Bench, Story, append, play

from anabranch import limits
from anabranch.errors import Unreachable
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore


def test_a_closed_ledger_that_lacks_a_bookie_looks_for_none() -> None:
    async def story(bench: Bench, store: BookKeeperLedgerStore) -> None:
        writer = await store.create(7)
        bench.bookies[0].fill(full=True)
        await append(writer, b"a", b"b")
        await asyncio.sleep(3.0)
        assert store.degraded is not None
        assert await writer.close() == 1
        await asyncio.sleep(30.0)
        assert store.degraded is None

    play(BookKeeperSettings(), 3, story)


def test_bookies_that_fail_at_once_do_not_take_turns_without_end() -> None:
    async def story(bench: Bench, store: BookKeeperLedgerStore) -> None:
        writer = await store.create(7)
        await append(writer, b"a", b"b", b"c")
        having = bench.having(7)
        having[0].fill(full=True)
        for bookie in bench.bookies:
            if bookie not in having:
                bench.world.process(bookie.name).crash()  # its node stays for some seconds
        # Each of the two that are gone could take the place of the other at once.
        with pytest.raises(Unreachable, match="cannot be recovered now: nobody takes the place"):
            await store.open(7)
        having[0].fill(full=False)
        await asyncio.sleep(3.0)
        reader = await store.open(7)
        entries = await reader.read(0, 2, max_bytes=1000)
        assert [bytes(entry.payload) for entry in entries] == [b"a", b"b", b"c"]

    play(BookKeeperSettings(ack_quorum=3), 5, story)


SPREAD = BookKeeperSettings(ensemble_size=4, write_quorum=3, ack_quorum=2)
"""With two bookies that take nothing, entries 1 and 2 can be confirmed, and entry 3 cannot."""


def refused_by_two(others_take_s: float, ends: list[int]) -> Story:
    """Have recovery begin at entry 1 and end at entry 3, for want of bookies; then mend it.

    Those that take entries do so when all was refused that will be. Where the ledger ends at last
    is added to `ends`.
    """

    async def story(bench: Bench, store: BookKeeperLedgerStore) -> None:
        writer = await store.create(7)
        await append(writer, b"a")
        await append(writer, b"b", b"c", b"d")
        ensemble = (await store.cluster.registry.read(7)).metadata.segments[0].bookies
        full = [bookie for bookie in bench.bookies if bookie.bookie_id in ensemble[:2]]
        for bookie in bench.bookies:
            if bookie in full:
                bookie.fill(full=True)
            else:
                bookie.treat = lambda _, request: others_take_s if request.HasField("add") else 0.0
        with pytest.raises(Unreachable, match="cannot be recovered now: nobody takes the place"):
            async with asyncio.timeout(30.0):
                await store.open(7)
        for bookie in full:
            bookie.fill(full=False)
        await asyncio.sleep(3.0)
        reader = await store.open(7)
        ends.append(reader.last_entry_id)

    return story


def test_a_recovery_that_lacks_a_bookie_for_a_later_entry_says_so() -> None:
    ends: list[int] = []
    play(SPREAD, 4, refused_by_two(4.0, ends))
    assert ends == [3]


def test_a_recovery_that_lacks_a_bookie_for_an_entry_yet_to_be_read_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_RECOVERY_READS_MAX", 1)
    ends: list[int] = []
    play(SPREAD, 4, refused_by_two(2.0, ends))
    assert ends == [3]
