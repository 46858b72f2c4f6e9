"""Finding the newest entry of a cursor's ledger that can be read, in a bounded number of reads."""

import asyncio

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError, Corruption, EntryLost, Unreachable
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.newest_entry import newest_readable

LOST = EntryLost("it is on no bookie")
ENTRIES = 50_000
READS_MAX = limits.CURSOR_LEDGER_SEARCH_ENTRIES + 2 * limits.CURSOR_LEDGER_SEARCH_PROBES_MAX


class HurtLedger:
    """A ledger of which some entries cannot be read."""

    ledger_id = 7

    def __init__(
        self, readable: range | set[int], error: AnabranchError = LOST, *, entries: int = ENTRIES
    ) -> None:
        self.last_entry_id = entries - 1
        self.reads = 0
        self.at_once = 0
        self._under_way = 0
        self._readable = readable
        self._error = error

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        assert first == last
        assert max_bytes > 0
        self.reads += 1
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        await asyncio.sleep(0)
        self._under_way -= 1
        if first not in self._readable:
            raise self._error
        return [Entry(self.ledger_id, first, memoryview(b"%d" % first))]


@pytest.mark.parametrize("entries", [ENTRIES, 10 * ENTRIES])
@pytest.mark.parametrize("error", [LOST, Corruption("a ledger", 0, "wrong")])
async def test_a_ledger_that_is_wholly_lost_is_given_up_soon(
    error: AnabranchError, entries: int
) -> None:
    ledger = HurtLedger(set(), error, entries=entries)
    assert await newest_readable(ledger) is None
    assert ledger.reads <= READS_MAX
    assert 1 < ledger.at_once <= limits.CURSOR_LEDGER_SEARCH_AT_ONCE


@pytest.mark.parametrize(
    ("entries", "island"),
    [
        (1_001, range(880, 901)),
        (2_000, range(600, 700)),
        (ENTRIES, range(ENTRIES - 1_024, ENTRIES - 1_023)),
        (ENTRIES, range(20_000, 20_061)),
        (ENTRIES, range(61)),
    ],
)
async def test_entries_between_lost_ones_are_found(entries: int, island: range) -> None:
    ledger = HurtLedger(island, entries=entries)
    found = await newest_readable(ledger)
    assert found is not None
    assert found.entry_id == island[-1]
    assert ledger.reads <= READS_MAX


@pytest.mark.parametrize("first", range(4))
async def test_what_one_of_four_bookies_has_is_found_however_old(first: int) -> None:
    ledger = HurtLedger(set(range(first, 10_000, 4)))
    found = await newest_readable(ledger)
    assert found is not None
    assert found.entry_id > 10_000 - 4 * limits.CURSOR_LEDGER_SEARCH_STEP_ENTRIES


async def test_an_intact_ledger_takes_one_read() -> None:
    ledger = HurtLedger(range(ENTRIES))
    assert await newest_readable(ledger) is not None
    assert ledger.reads == 1


async def test_bookies_that_do_not_answer_leave_it_open_what_is_lost() -> None:
    ledger = HurtLedger(range(10), Unreachable("nobody answers"))
    with pytest.raises(Unreachable):
        await newest_readable(ledger)


@pytest.mark.parametrize("kept", [1, 2, 17, 4_096, 33_333, ENTRIES - 1_000, ENTRIES - 2, ENTRIES])
async def test_the_last_entry_before_a_lost_end_is_found(kept: int) -> None:
    ledger = HurtLedger(range(kept))
    found = await newest_readable(ledger)
    assert found is not None
    assert found.entry_id == kept - 1
    assert ledger.reads <= READS_MAX


async def test_every_fifth_entry_is_enough() -> None:
    ledger = HurtLedger(set(range(0, ENTRIES, 5)))
    found = await newest_readable(ledger)
    assert found is not None
    assert found.entry_id == ENTRIES - 5


async def test_a_ledger_without_entries_has_none() -> None:
    ledger = HurtLedger(set())
    ledger.last_entry_id = -1
    assert await newest_readable(ledger) is None
    assert ledger.reads == 0
