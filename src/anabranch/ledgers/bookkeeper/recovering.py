"""Recovering a ledger that its writer left open: what `recovery` decides, done."""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError, Corruption, Unreachable
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames, transitions
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY, Packet
from anabranch.ledgers.bookkeeper.ensemble import replaced, with_segment
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.ledger_registry import Found
from anabranch.ledgers.bookkeeper.reader import LedgerView
from anabranch.ledgers.bookkeeper.reading import EntryReads
from anabranch.ledgers.bookkeeper.recovery import LedgerRecovery
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.telemetry import get_logger

_log: Final = get_logger("bookkeeper")


class Recovering:
    """One attempt. Also the `RecoveryOutput` and the `WriterOutput` of its decisions."""

    def __init__(self, cluster: Cluster, found: Found) -> None:
        metadata = found.metadata
        self._cluster = cluster
        self._found = found
        self._view = LedgerView(metadata)
        self._ledger_id = metadata.ledger_id
        self._requests = frames.AddRequests(
            metadata.ledger_id,
            self._view.master_key,
            cluster.links.add_numbers,
            recovery=True,
        )
        self._segments = metadata.segments
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._core = LedgerRecovery(
            self, metadata.ledger_id, self._view.quorums, metadata.segments[-1]
        )
        self._writing: LedgerWriting | None = None

    async def run(self) -> Found:
        """Find the end of the ledger and close it there.

        Raises:
            Unreachable: if too few bookies answer; the ledger stays as it is.
            NotFound: if it was deleted.
        """
        self._core.begin()
        try:
            last = await self._end
        except asyncio.CancelledError:
            self._core.abandon()
            raise
        assert self._writing is not None, "a ledger has an end when reading has begun"
        length = self._writing.length
        if self._writing.next_entry_id == self._start:
            length = await self._length_at(last)
        closed = await transitions.close_recovered(
            self._cluster.registry, self._found, last, length, self._segments
        )
        _log.info(
            "ledger_recovered",
            ledger=self._ledger_id,
            last_entry=closed.metadata.last_entry_id,
            written_again=self._writing.next_entry_id - self._start,
        )
        return closed

    async def _length_at(self, entry_id: int) -> int:
        """The length of the ledger up to an entry that was not read."""
        if entry_id < 0:
            return 0
        settings = self._cluster.settings
        reads = EntryReads(
            self._cluster.links, self._view.digest, self._ledger_id, settings.speculative_read_s
        )
        result = (await reads.read([self._view.wanted(entry_id)]))[entry_id]
        if isinstance(result, AnabranchError):
            raise result
        return result.length

    # --- as the output of the recovery --------------------------------------------------------

    def read_last(self, place: int, bookie: str, /) -> None:
        """See `RecoveryOutput.read_last`."""
        request = frames.read(self._ledger_id, LAST_ENTRY, fence_key=self._view.master_key)
        self._cluster.links.link(bookie).ask(request, self._last_replied, place)

    def _last_replied(self, place: int, status: Status, response: pb.Response | None) -> None:
        status, packet = self._opened(LAST_ENTRY, status, response)
        self._core.last_answered(place, status, packet)

    def read_entry(self, entry_id: int, place: int, bookie: str, /) -> None:
        """See `RecoveryOutput.read_entry`."""
        request = frames.read(self._ledger_id, entry_id, fence_key=self._view.master_key)
        self._cluster.links.link(bookie).ask(request, self._entry_replied, entry_id)

    def _entry_replied(self, entry_id: int, status: Status, response: pb.Response | None) -> None:
        status, packet = self._opened(entry_id, status, response)
        self._core.entry_answered(entry_id, status, packet)

    def _opened(
        self, entry_id: int, status: Status, response: pb.Response | None
    ) -> tuple[Status, Packet | None]:
        if status is not Status.OK or response is None:
            return status, None
        try:
            body = response.read.body
            return status, self._view.digest.open_packet(body, self._ledger_id, entry_id)
        except Corruption as damage:
            _log.warning("damaged_entry", reason=str(damage))
            return Status.DAMAGED, None

    def start_writing(self, last_confirmed: int, /) -> None:
        """See `RecoveryOutput.start_writing`."""
        self._start = last_confirmed + 1
        bookies = self._segments[-1].bookies
        self._writing = LedgerWriting(
            self, self._view.quorums, bookies, last_confirmed=last_confirmed
        )

    def write_again(self, packet: Packet, /) -> None:
        """See `RecoveryOutput.write_again`."""
        writing, view = self._writing, self._view
        assert writing is not None, "writing begins before the first entry is found"
        if writing.stopped is not None:
            return
        entry_id, payload = packet.entry_id, packet.payload
        start = view.digest.header_and_digest(
            view.ledger_id, entry_id, packet.last_confirmed, packet.length, payload
        )
        request = self._requests.add(entry_id, start, payload)
        places = view.quorums.write_set(entry_id)
        writing.add(Add(entry_id, request, len(payload), packet.length, places, None))
        self._give_up_if_stuck(writing)

    def close(self, last_entry_id: int, /) -> None:
        """See `RecoveryOutput.close`."""
        if not self._end.done():
            self._end.set_result(last_entry_id)

    def give_up(self, error: AnabranchError, /) -> None:
        """See `RecoveryOutput.give_up`."""
        if not self._end.done():
            self._end.set_exception(error)

    # --- as the output of the writing ---------------------------------------------------------

    def send(self, add: Add, place: int, bookie: str, /) -> None:
        """See `WriterOutput.send`."""
        link = self._cluster.links.link(bookie)
        link.ask(add.request, self._add_replied, (add, place, bookie))

    def _add_replied(
        self, sent: tuple[Add, int, str], status: Status, response: pb.Response | None
    ) -> None:
        add, place, bookie = sent
        writing = self._writing
        assert writing is not None, "nothing is sent before writing begins"
        if status is Status.OK:
            writing.confirmed((add,), place, bookie)
        else:
            writing.place_failed(place, bookie)

    def complete(self, add: Add, /) -> None:
        """See `WriterOutput.complete`."""
        self._core.written(add.entry_id)
        if self._writing is not None:
            self._give_up_if_stuck(self._writing)

    def fail(self, add: Add, error: AnabranchError, /) -> None:
        """See `WriterOutput.fail`."""
        self.give_up(error)

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...], /
    ) -> None:
        """See `WriterOutput.change_ensemble`: the metadata are written at the end only."""
        self._loop.call_soon(self._change, first_entry_id, bookies, places)

    def _change(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...]
    ) -> None:
        writing = self._writing
        assert writing is not None, "nothing fails before writing begins"
        if self._end.done():
            return
        for place in places:
            self._cluster.failed(bookies[place])
        replacements = self._cluster.replacements(bookies, places)
        if replacements:
            wanted = replaced(bookies, replacements)
            self._segments = with_segment(self._segments, first_entry_id, wanted)
        writing.changed(replacements, places)
        self._give_up_if_stuck(writing)

    def _give_up_if_stuck(self, writing: LedgerWriting) -> None:
        """Nobody waits for bookies to come: each entry that becomes the first one is looked at."""
        if writing.stuck and not writing.changing:
            names = ", ".join(writing.bookies[place] for place in writing.missing)
            writing.stop(
                Unreachable(
                    f"ledger {self._ledger_id} cannot be recovered now: nobody takes the place "
                    f"of {names}"
                )
            )
