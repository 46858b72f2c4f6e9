"""Strikes bookies where the protocol is thinnest: around a recovery, and behind an acknowledgement.

Everything it does a real cluster can do by itself: entries lie in a bookie's queue while others
are faster, one entry is refused while those before it are written, and a connection breaks before
a request is carried out.
"""

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.testing.bookies.server import BREAKS, REFUSES
from anabranch.testing.simulation.world import World


class Hunter:
    """Decides how bookies treat what they are asked. See `server.Treat`."""

    def __init__(self, world: World, bookies: list[str], *, timeout_s: float) -> None:
        self._world = world
        self._bookies = bookies
        rng = self._rng = world.rng("hunter")
        self._recoveries_left = rng.choice((0, 20, 100))
        self._queue_s = rng.choice((0.05, timeout_s, 3 * timeout_s))
        """How long entries lie at most: shorter than their writer waits, or longer."""
        self._queueing_share = rng.choice((0.0, 0.002, 0.01))
        self._refusing_share = rng.choice((0.0, 0.005, 0.03))
        self._fence_breaks_share = rng.choice((0.0, 0.1, 0.4))
        self._recovery_breaks_share = rng.choice((0.0, 0.02, 0.1))
        self._queued_until_s: dict[tuple[str, int], float] = {}
        self._thoughtful: dict[int, str] = {}
        """By ledger, the bookie that is slow to say what it has."""

    def stop(self) -> None:
        """No more."""
        self._recoveries_left = 0
        self._queueing_share = self._refusing_share = 0.0
        self._fence_breaks_share = self._recovery_breaks_share = 0.0
        self._queued_until_s.clear()
        self._thoughtful.clear()

    def recovering(self, ledger_id: int) -> None:
        """Somebody is about to open a ledger: what its writer sends now comes late."""
        if not self._recoveries_left:
            return
        self._recoveries_left -= 1
        self._world.reach("hunted recovery")
        for bookie in self._rng.sample(self._bookies, self._rng.randrange(1, len(self._bookies))):
            self._queue(bookie, ledger_id)
        self._thoughtful[ledger_id] = self._rng.choice(self._bookies)

    def _queue(self, bookie: str, ledger_id: int) -> None:
        until_s = self._world.now_s() + self._rng.uniform(0.0, self._queue_s)
        self._queued_until_s[bookie, ledger_id] = until_s

    def treat(self, bookie: str, request: pb.Request) -> float:
        """See `server.Treat`."""
        if request.HasField("add"):
            return self._treat_add(bookie, request.add)
        if request.HasField("read") and request.read.HasField("flag"):
            return self._treat_fencing_read(bookie, request.read)
        return 0.0

    def _treat_fencing_read(self, bookie: str, read: pb.ReadRequest) -> float:
        if read.entry_id < 0:
            return self._breaks("hunted fence", self._fence_breaks_share)
        if self._thoughtful.get(read.ledger_id) == bookie:
            return self._rng.uniform(0.0, self._queue_s)
        return self._breaks("hunted recovery read", self._recovery_breaks_share)

    def _treat_add(self, bookie: str, add: pb.AddRequest) -> float:
        if add.HasField("flag"):
            return self._breaks("hunted recovery add", self._recovery_breaks_share)
        if self._rng.random() < self._refusing_share:
            self._world.reach("hunted by refusal")
            return REFUSES
        if self._rng.random() < self._queueing_share:
            self._world.reach("hunted add")
            self._queue(bookie, add.ledger_id)
        until_s = self._queued_until_s.get((bookie, add.ledger_id), 0.0)
        return max(0.0, until_s - self._world.now_s())

    def _breaks(self, mark: str, share: float) -> float:
        if self._rng.random() >= share:
            return 0.0
        self._world.reach(mark)
        return BREAKS
