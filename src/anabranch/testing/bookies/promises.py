"""What clients of a bookie cluster were promised, kept outside the processes that die.

A ledger has one writer, which gives each entry id one content. What was acknowledged to the writer
is in every later reading; what one recovery showed, every later one shows; nobody is told of an
entry after its ledger was closed without it.
"""

import asyncio

from anabranch.testing.bookies.shelves import PACKET_HEADER
from anabranch.testing.simulation.world import World


class Promised:
    """What is known of one ledger."""

    def __init__(self) -> None:
        self.created = False
        self.attempted: list[bytes] = []
        self.acknowledged = 0
        self.refused = False
        """Whether an append of its writer failed: none is acknowledged from then on."""
        self.known = 0
        """How many entries somebody who did not open it was told to be durable."""
        self.shown: int | None = None
        """How many entries it has, once that was settled; never changes again."""


class Promises:
    """Every promise that was made."""

    def __init__(self, world: World, operations_min: int) -> None:
        self.world = world
        self.ledgers: dict[int, Promised] = {}
        self.enough = asyncio.Event()
        self.over = False
        self._operations = 0
        self._operations_min = operations_min

    def operate(self, mark: str, times: int = 1) -> None:
        """Count an operation that was answered."""
        self._operations += times
        self.world.reach("operations", times)
        self.world.reach(mark, times)
        if self._operations >= self._operations_min:
            self.enough.set()

    def begin(self) -> int:
        """A number that no ledger has had."""
        ledger_id = len(self.ledgers)
        self.ledgers[ledger_id] = Promised()
        return ledger_id

    def settled(self, *, wanted: bool) -> list[int]:
        """Ledgers whose end is known, or those whose end is not."""
        return [
            ledger_id
            for ledger_id, promised in self.ledgers.items()
            if promised.created and (promised.shown is not None) is wanted
        ]

    # --- what the writer hears ----------------------------------------------------------------

    def acknowledge(self, ledger_id: int, entry_id: int) -> None:
        """An append was answered."""
        promised = self.ledgers[ledger_id]
        assert not promised.refused, f"{ledger_id}:{entry_id} was answered after a failure"
        assert entry_id == promised.acknowledged, f"{ledger_id}:{entry_id} is out of order"
        if promised.shown is not None:
            assert entry_id < promised.shown, f"{ledger_id}:{entry_id} was answered and is lost"
        promised.acknowledged += 1
        self.operate("acknowledged")

    def refuse(self, ledger_id: int, reason: str) -> None:
        """An append failed."""
        self.ledgers[ledger_id].refused = True
        self.operate(f"refused: {reason}")

    # --- what bookies hear ----------------------------------------------------------------------

    def hear(self, bookie: str, packet: bytes, recovery: bool) -> None:
        """A bookie takes in an entry: the one that the writer made, whoever sends it."""
        ledger_id, entry_id, confirmed, _ = PACKET_HEADER.unpack_from(packet)
        where = f"{ledger_id}:{entry_id} at {bookie}"
        promised = self.ledgers[ledger_id]
        assert 0 <= entry_id < len(promised.attempted), f"nobody wrote {where}"
        assert packet.endswith(promised.attempted[entry_id]), f"another content for {where}"
        known = entry_id if recovery else promised.acknowledged
        assert confirmed < known, f"{confirmed} is said to be confirmed by {where}"

    # --- what readers hear ----------------------------------------------------------------------

    def read(self, ledger_id: int, first: int, found: list[bytes]) -> None:
        """Entries were read, from the first one on."""
        attempted = self.ledgers[ledger_id].attempted
        wanted = attempted[first : first + len(found)]
        assert found == wanted, f"ledger {ledger_id}: wrong bytes from {first} on"
        self.operate("read", len(found))

    def know(self, ledger_id: int, entries: int) -> None:
        """Somebody learnt how many entries of an open ledger are durable at least."""
        promised = self.ledgers[ledger_id]
        promised.known = max(promised.known, entries)
        if promised.shown is not None:
            assert entries <= promised.shown, f"ledger {ledger_id} was said to have {entries}"
        self.operate("described")

    def settle(self, ledger_id: int, entries: int) -> None:
        """Somebody learnt how many entries a closed ledger has."""
        promised = self.ledgers[ledger_id]
        assert promised.shown in (None, entries), (
            f"ledger {ledger_id} had {promised.shown} entries and has {entries}"
        )
        assert promised.acknowledged <= entries <= len(promised.attempted), (
            f"ledger {ledger_id}: {promised.acknowledged} were acknowledged, {entries} are left"
        )
        assert promised.known <= entries, f"ledger {ledger_id} was said to have {promised.known}"
        promised.created = True
        promised.shown = entries
        self.operate("settled")
