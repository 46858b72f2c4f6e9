"""Reading entries from bookies: each from one after another, until one has it as it was written."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.errors import AnabranchError, Corruption, EntryLost, Unreachable
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.digests import Packet, PacketDigest
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.link import BookieLinks

Result = Packet | AnabranchError


class Wanted(NamedTuple):
    """An entry, and the bookies that have it in the order in which they are to be asked."""

    entry_id: int
    bookies: Sequence[str]


class _Asked:
    """How far the reading of one entry is."""

    __slots__ = ("damage", "decided", "next", "unanswered", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.next = 0
        self.unanswered = 0
        self.decided = 0
        """How many said for good that they do not have it as it was written."""
        self.damage: Corruption | None = None


class EntryReads:
    """The reading of some entries of one ledger at the same time."""

    def __init__(
        self,
        links: BookieLinks,
        digest: PacketDigest,
        ledger_id: int,
        speculative_s: float,
        *,
        keep_payloads: bool = True,
    ) -> None:
        """Without payloads, what is read takes no more memory than a packet at a time."""
        self._links = links
        self._digest = digest
        self._ledger_id = ledger_id
        self._speculative_s = speculative_s
        self._keep_payloads = keep_payloads
        self._loop = asyncio.get_running_loop()
        self._waiting: Iterator[Wanted] = iter(())
        self._open: dict[int, _Asked] = {}
        self._open_max = 0
        self._bytes_left = 0
        self._is_asking = False
        self._results: dict[int, Result] = {}
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._failed: dict[str, None] = {}
        self._slow: dict[str, None] = {}
        """Bookies that others were asked instead of; for what is asked later they come last."""

    async def read(
        self, wanted: Sequence[Wanted], *, at_once: int = 0, max_bytes: int | None = None
    ) -> dict[int, Result]:
        """Each entry, or why there is none.

        An error is `Unreachable` if a bookie that may have the entry did not answer: who asks
        again may get it. Else it is `Corruption` if bytes came and were not those that were
        written, and `EntryLost` if nobody has any.

        Args:
            wanted: the entries, in the order in which they are asked for.
            at_once: for how many of them; 0: for all.
            max_bytes: once more than these have come, no more are asked for; those are left out.
        """
        self._waiting = iter(wanted)
        self._open_max = at_once or len(wanted)
        self._bytes_left = sys.maxsize if max_bytes is None else max_bytes
        self._ask_more()
        timer = self._loop.call_later(self._speculative_s, self._speculate)
        self._timer = timer
        try:
            await self._finished
        finally:
            self._timer.cancel()
            self._open.clear()
        return self._results

    @property
    def failed_bookies(self) -> Sequence[str]:
        """Those that did not give an entry they were asked for."""
        return list(self._failed)

    def _ask_more(self) -> None:
        """Ask for what may be asked for now; note when nothing is left."""
        if self._is_asking:
            return  # an answer that came at once: the loop below goes on
        self._is_asking = True
        while len(self._open) < self._open_max and self._bytes_left >= 0:
            wanted = next(self._waiting, None)
            if wanted is None:
                break
            if self._slow:
                wanted = wanted._replace(bookies=sorted(wanted.bookies, key=self._is_slow))
            asked = self._open[wanted.entry_id] = _Asked(wanted)
            self._ask_next(asked)
        self._is_asking = False
        if not self._open and not self._finished.done():
            self._finished.set_result(None)

    def _ask_next(self, asked: _Asked) -> None:
        entry_id, bookies = asked.wanted
        bookie = bookies[asked.next]
        asked.next += 1
        asked.unanswered += 1
        request = frames.read(self._ledger_id, entry_id)
        self._links.link(bookie).ask(request, self._replied, (asked, bookie))

    def _replied(
        self, context: tuple[_Asked, str], status: Status, response: pb.Response | None
    ) -> None:
        asked, bookie = context
        entry_id = asked.wanted.entry_id
        if self._open.get(entry_id) is not asked:
            return
        asked.unanswered -= 1
        if status is Status.OK and response is not None:
            try:
                packet = self._digest.open_packet(response.read.body, self._ledger_id, entry_id)
            except Corruption as damage:
                asked.damage = damage
                asked.decided += 1
            else:
                if not self._keep_payloads:
                    packet = packet._replace(payload=memoryview(b""))
                self._finish(entry_id, packet)
                return
        elif status.says_absent:
            asked.decided += 1
        self._failed[bookie] = None
        if asked.next < len(asked.wanted.bookies):
            self._ask_next(asked)
        elif not asked.unanswered:
            self._finish(entry_id, self._error(asked, status))

    def _error(self, asked: _Asked, status: Status) -> AnabranchError:
        entry_id, bookies = asked.wanted
        names = ", ".join(bookies)
        what = f"entry {entry_id} of ledger {self._ledger_id}"
        if asked.decided < len(bookies):
            return Unreachable(f"{what} cannot be read now from any of {names}: {status.name}")
        if asked.damage is not None:
            return asked.damage
        return EntryLost(f"{what} is on none of the bookies {names} that should have it")

    def _finish(self, entry_id: int, result: Result) -> None:
        del self._open[entry_id]
        self._results[entry_id] = result
        if isinstance(result, Packet):
            self._bytes_left -= len(result.payload)
        self._ask_more()

    def _is_slow(self, bookie: str) -> bool:
        return bookie in self._slow

    def _speculate(self) -> None:
        for asked in list(self._open.values()):
            if asked.next < len(asked.wanted.bookies):
                self._slow[asked.wanted.bookies[asked.next - 1]] = None
                self._ask_next(asked)
        self._timer = self._loop.call_later(self._speculative_s, self._speculate)
