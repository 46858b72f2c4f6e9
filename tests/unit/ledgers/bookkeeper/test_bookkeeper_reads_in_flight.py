"""How much a read of a ledger on bookies may bring at once, however large its entries are."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch import limits
from anabranch.ledgers.bookkeeper.reading import EntryReads, _Asked
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster
from anabranch.testing.contracts.ledgers import append

ENTRIES = 40
ENTRY_BYTES = 200
FRAME_BYTES = 1000
AT_ONCE = 4
STORED = [b"%03d" % number + bytes(ENTRY_BYTES - 3) for number in range(ENTRIES)]


class InFlight:
    """Counts what is asked for."""

    def __init__(self) -> None:
        self.most = 0
        self.asked = 0


@pytest.fixture
def in_flight(monkeypatch: pytest.MonkeyPatch) -> InFlight:
    seen = InFlight()
    real = EntryReads._ask_next

    def ask_next(self: EntryReads, asked: _Asked) -> None:
        seen.most = max(seen.most, len(self._open))
        seen.asked += 1
        real(self, asked)

    monkeypatch.setattr(EntryReads, "_ask_next", ask_next)
    return seen


@pytest.fixture
async def cluster() -> AsyncIterator[LoopbackCluster]:
    cluster = LoopbackCluster()
    await cluster.more_bookies(3)
    writer = await (await cluster.store()).create(1)
    for payload in STORED:
        await append(writer, payload)
    await writer.close()
    yield cluster
    await cluster.end()


@pytest.mark.parametrize(
    ("bound_bytes", "most"),
    [(AT_ONCE * FRAME_BYTES, AT_ONCE), (FRAME_BYTES // 2, 1), (ENTRIES * ENTRY_BYTES, ENTRIES)],
    ids=["as many as may be large", "one at least", "all if the ledger is no larger"],
)
async def test_no_more_is_in_flight_than_fits_if_every_entry_is_as_large_as_can_be(
    cluster: LoopbackCluster,
    in_flight: InFlight,
    monkeypatch: pytest.MonkeyPatch,
    bound_bytes: int,
    most: int,
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_IN_FLIGHT_BYTES_MAX", bound_bytes)
    store = await cluster.store(replace(SETTINGS, frame_bytes_max=FRAME_BYTES))
    reader = await store.open(1)
    in_flight.most = 0
    found = await reader.read(0, ENTRIES - 1, max_bytes=1 << 20)
    assert [bytes(entry.payload) for entry in found] == STORED
    assert 1 <= in_flight.most <= most
    assert in_flight.most > AT_ONCE or most <= AT_ONCE


async def test_no_more_is_asked_for_once_enough_has_come(
    cluster: LoopbackCluster, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_IN_FLIGHT_BYTES_MAX", AT_ONCE * FRAME_BYTES)
    # As of a ledger whose entries were small until now.
    monkeypatch.setattr("anabranch.ledgers.bookkeeper.reader.BookKeeperReader._how_many", _many)
    store = await cluster.store(replace(SETTINGS, frame_bytes_max=FRAME_BYTES))
    reader = await store.open(1)
    in_flight.asked = 0
    found = await reader.read(0, ENTRIES - 1, max_bytes=5 * ENTRY_BYTES)
    assert [bytes(entry.payload) for entry in found] == STORED[:5]
    assert in_flight.asked <= 6 + AT_ONCE


def _many(self: object, max_bytes: int) -> int:
    del self, max_bytes
    return ENTRIES


async def test_a_bookie_that_hangs_is_waited_for_once(
    cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_IN_FLIGHT_BYTES_MAX", AT_ONCE * FRAME_BYTES)
    monkeypatch.setattr("anabranch.ledgers.bookkeeper.reader.BookKeeperReader._how_many", _many)
    patient = replace(
        SETTINGS, frame_bytes_max=FRAME_BYTES, request_timeout_s=20, speculative_read_s=0.3
    )
    reader = await (await cluster.store(patient)).open(1)
    (await cluster.bookie_of(1, 1)).delay_s = 60  # the one that is asked first
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    found = await reader.read(0, ENTRIES - 1, max_bytes=1 << 20)
    assert [bytes(entry.payload) for entry in found] == STORED
    assert 0.2 < loop.time() - began_s < 4 * 0.3, "not once for every few entries"
