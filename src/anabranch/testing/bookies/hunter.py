"""Strikes bookies where the protocol is thinnest: around a recovery, and behind an acknowledgement.

Everything it does a real cluster can do by itself: some requests lie in a bookie's queue while
others are faster, one entry is refused while those before it are written, and a connection breaks
before a request is carried out.
"""

from itertools import cycle
from typing import Final

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.testing.bookies.server import BREAKS, REFUSES
from anabranch.testing.simulation.world import World

_ADD: Final = "add"
_FENCE: Final = "fence"
_READ: Final = "read"
_LATE: Final = ((_ADD,), (_READ,), (_ADD, _FENCE))
"""What may come late to a bookie when a ledger is recovered: entries; the question for an entry, so
that it does not say what it has; entries and then the question for the last one, so that it still
takes entries when all others are fenced."""


class Hunter:
    """Decides how bookies treat what they are asked. See `server.Treat`."""

    def __init__(self, world: World, *, timeout_s: float) -> None:
        self._world = world
        rng = self._rng = world.rng("hunter")
        self._recoveries_left = rng.choice((0, 20, 100))
        self._queue_s = rng.choice((0.05, timeout_s, 3 * timeout_s))
        """How long entries lie at most: shorter than their writer waits, or longer."""
        self._queueing_share = rng.choice((0.0, 0.002, 0.01))
        self._refusing_share = rng.choice((0.0, 0.005, 0.03))
        self._fence_breaks_share = rng.choice((0.0, 0.1, 0.4))
        self._recovery_breaks_share = rng.choice((0.0, 0.02, 0.1))
        self._late_until_s: dict[tuple[str, int, str], float] = {}
        """By bookie, ledger, and what is late there."""
        self._asked: dict[int, dict[str, None]] = {}
        """By ledger, the bookies that were asked to take entries."""

    def stop(self) -> None:
        """No more."""
        self._recoveries_left = 0
        self._queueing_share = self._refusing_share = 0.0
        self._fence_breaks_share = self._recovery_breaks_share = 0.0
        self._late_until_s.clear()

    def recovering(self, ledger_id: int) -> None:
        """Somebody is about to open a ledger: each of its bookies is late in a way of its own."""
        if not self._recoveries_left:
            return
        self._recoveries_left -= 1
        self._world.reach("hunted recovery")
        bookies = list(self._asked.get(ledger_id, ()))
        self._rng.shuffle(bookies)
        for bookie, late in zip(bookies, cycle(_LATE), strict=False):
            until_s = self._world.now_s()
            for what in late:
                until_s += self._rng.uniform(0.0, self._queue_s)
                self._late_until_s[bookie, ledger_id, what] = until_s

    def _wait_s(self, bookie: str, ledger_id: int, what: str) -> float:
        until_s = self._late_until_s.get((bookie, ledger_id, what), 0.0)
        return max(0.0, until_s - self._world.now_s())

    def treat(self, bookie: str, request: pb.Request) -> float:
        """See `server.Treat`."""
        if request.HasField("add"):
            return self._treat_add(bookie, request.add)
        if request.HasField("read"):
            return self._treat_read(bookie, request.read)
        return 0.0

    def _treat_read(self, bookie: str, read: pb.ReadRequest) -> float:
        fencing = read.HasField("flag")
        if read.entry_id < 0:
            mark, share, what = "hunted fence", self._fence_breaks_share, _FENCE
        else:
            mark, share, what = "hunted recovery read", self._recovery_breaks_share, _READ
        wait_s = self._wait_s(bookie, read.ledger_id, what)
        return wait_s if wait_s or not fencing else self._breaks(mark, share)

    def _treat_add(self, bookie: str, add: pb.AddRequest) -> float:
        self._asked.setdefault(add.ledger_id, {})[bookie] = None
        if add.HasField("flag"):
            return self._breaks("hunted recovery add", self._recovery_breaks_share)
        if self._rng.random() < self._refusing_share:
            self._world.reach("hunted by refusal")
            return REFUSES
        if self._rng.random() < self._queueing_share:
            self._world.reach("hunted add")
            until_s = self._world.now_s() + self._rng.uniform(0.0, self._queue_s)
            self._late_until_s[bookie, add.ledger_id, _ADD] = until_s
        return self._wait_s(bookie, add.ledger_id, _ADD)

    def _breaks(self, mark: str, share: float) -> float:
        if self._rng.random() >= share:
            return 0.0
        self._world.reach(mark)
        return BREAKS
