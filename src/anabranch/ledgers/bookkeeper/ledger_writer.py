"""Writing a ledger on bookies: what `writer` decides, done."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    Fenced,
    InputError,
    StorageError,
    StoreBusy,
    Unreachable,
)
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames, transitions
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY
from anabranch.ledgers.bookkeeper.ensemble import replaced
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.lanes import Lane
from anabranch.ledgers.bookkeeper.ledger_registry import Found
from anabranch.ledgers.bookkeeper.reader import BookKeeperReader, LedgerView
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.ledgers.store import AppendDone
from anabranch.runtime.network import Buffer
from anabranch.telemetry import get_logger

_log: Final = get_logger("bookkeeper")


class BookKeeperWriter(BookKeeperReader):
    """See `LedgerWriter`. Also the `WriterOutput` of its decisions."""

    def __init__(self, cluster: Cluster, found: Found) -> None:
        view = LedgerView(found.metadata)
        super().__init__(cluster, view)
        self._found = found
        self.core = LedgerWriting(self, view.quorums, found.metadata.segments[-1].bookies)
        self._lanes: list[Lane | None] = [None] * view.quorums.ensemble
        self._pressure = cluster.pressure
        self._packet_start = view.digest.header_and_digest
        numbers = cluster.links.add_numbers
        self._request = frames.AddRequests(view.ledger_id, view.master_key, numbers).add
        self._write_set = view.quorums.write_set
        self._payload_bytes_max = cluster.settings.frame_bytes_max - frames.ADD_OVERHEAD_BYTES_MAX
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._closed_last: int | None = None
        self._close_lock: asyncio.Lock | None = None
        self._idle: asyncio.Future[None] | None = None
        self._lac_told = -1
        self._tell = self._tell_lac
        self._on_over: Callable[[BookKeeperWriter], None] | None = None
        self._mending = False
        self._stuck: tuple[int, float] | None = None
        """The entry before the last one that lacked bookies, and since when it did."""

    @property
    def last_entry_id(self) -> int:
        """See `LedgerReader.last_entry_id`."""
        return self.core.last_confirmed

    @property
    def length_bytes(self) -> int:
        """See `BookKeeperReader.length_bytes`."""
        return self.core.length

    @property
    def is_open(self) -> bool:
        """Whether it may still append."""
        return self.core.stopped is None and self._closed_last is None

    # --- appending ----------------------------------------------------------------------------

    def append(self, payload: Buffer, done: AppendDone) -> int:
        """See `LedgerWriter.append`."""
        core = self.core
        if self._closing or core.stopped is not None:
            self._refuse()
        size_bytes = len(payload)
        if size_bytes > self._payload_bytes_max:
            raise InputError(
                f"an entry of {size_bytes} bytes is too large, bookies take "
                f"{self._payload_bytes_max}"
            )
        if self._pressure.pending_bytes > limits.STORE_PENDING_BYTES_MAX:
            raise StoreBusy(f"{self._pressure.pending_bytes} bytes wait for the bookies")
        if type(payload) is not bytes and not (type(payload) is memoryview and payload.readonly):
            # The last bookies may get it after enough others had it, when it may change.
            payload = bytes(payload)
        view = self.view
        entry_id = core.next_entry_id
        lac = self._lac_told = core.last_confirmed
        length = core.pushed_length + size_bytes
        start = self._packet_start(view.ledger_id, entry_id, lac, length, payload)
        request = self._request(entry_id, start, payload)
        self._pressure.pending_bytes += size_bytes
        core.add(Add(entry_id, request, size_bytes, length, self._write_set(entry_id), done))
        return entry_id

    def _refuse(self) -> NoReturn:
        stopped = self.core.stopped
        if isinstance(stopped, Fenced):
            raise Fenced(str(stopped))
        if self._closing or isinstance(stopped, AlreadyClosed):
            raise AlreadyClosed(f"ledger {self.ledger_id} is closed")
        raise StorageError(f"ledger {self.ledger_id} takes no entries any more: {stopped}")

    def fence(self, why: str) -> None:
        """Somebody else has the ledger from now on."""
        self.stop(Fenced(f"ledger {self.ledger_id} was {why} by somebody else"))

    def stop(self, error: AnabranchError) -> None:
        """Append nothing any more; what is under way fails."""
        self.core.stop(error)
        self._over()

    def when_over(self, call: "Callable[[BookKeeperWriter], None]") -> None:
        """Have a function called when the writer has stopped or closed its ledger."""
        self._on_over = call

    def _over(self) -> None:
        self._cluster.lacking.pop(self.ledger_id, None)
        self._note_idle()
        if self._on_over is not None:
            self._on_over(self)
            self._on_over = None

    # --- as the output of the decisions -------------------------------------------------------

    def send(self, add: Add, place: int, bookie: str, /) -> None:
        """See `WriterOutput.send`."""
        lane = self._lanes[place]
        if lane is None or lane.bookie != bookie:
            cluster = self._cluster
            lane = Lane(self, place, cluster.links.link(bookie), cluster.turn)
            self._lanes[place] = lane
        lane.send(add)

    def not_stored(self, add: Add, place: int, bookie: str, status: Status, /) -> None:
        """See `LaneOwner.not_stored`."""
        if status is Status.FENCED:
            self.stop(Fenced(f"ledger {self.ledger_id} was opened by somebody else"))
        elif status is Status.UNAUTHORIZED:
            self.stop(
                StorageError(
                    f"bookie {bookie} refuses the password of ledger {self.ledger_id}, or whoever "
                    "comes with these credentials"
                )
            )
        elif self.core.place_failed(place, bookie):
            _log.info(
                "append_failed_on_bookie",
                ledger=self.ledger_id,
                entry=add.entry_id,
                bookie=bookie,
                reason=status.name,
            )

    def complete(self, add: Add, /) -> None:
        """See `WriterOutput.complete`."""
        add.context(add.entry_id, None)
        self._pressure.settle(add.size_bytes)
        if not self.core.pending:
            if self._cluster.settings.explicit_lac_s:
                self._cluster.untold[self._tell] = None
            self._note_idle()

    def fail(self, add: Add, error: AnabranchError, /) -> None:
        """See `WriterOutput.fail`."""
        add.context(add.entry_id, error)
        self._pressure.settle(add.size_bytes)

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...], /
    ) -> None:
        """See `WriterOutput.change_ensemble`."""
        if self._cluster.tasks.closed:
            return
        self._cluster.tasks.spawn(
            f"change the ensemble of ledger {self.ledger_id}",
            self._change(first_entry_id, bookies, places),
        )

    # --- the ensemble -------------------------------------------------------------------------

    def leave(self, places: Sequence[int]) -> bool:
        """Have other bookies take some places; says whether that is new."""
        if self._closing or not self.is_open:
            return False
        bookies = self.core.bookies
        left = [self.core.place_failed(place, bookies[place]) for place in places]
        return any(left)

    def _waited_for(self) -> bool:
        """Whether somebody wants an answer that depends on the ensemble."""
        return self._closing or bool(self.core.pending)

    async def _change(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...]
    ) -> None:
        cluster = self._cluster
        for place in places:
            cluster.failed(bookies[place])
        replacements = cluster.replacements(bookies, places)
        if self._closing and not self.core.pending:
            replacements = {}  # nothing will be written there
        if replacements:
            wanted = replaced(bookies, replacements)
            try:
                self._found = await transitions.change_ensemble(
                    cluster.registry,
                    self._found,
                    first_entry_id,
                    wanted,
                    cluster.settings.quorum_wait_s,
                    self._waited_for,
                )
            except AnabranchError as error:
                self.stop(error)
                return
            self.view.metadata = self._found.metadata
            _log.info(
                "ensemble_changed", ledger=self.ledger_id, entry=first_entry_id, bookies=wanted
            )
        self.core.changed(replacements, places)
        self._note_idle()
        self._note_missing()

    def _note_missing(self) -> None:
        missing = self.core.missing
        if not self.is_open or not missing:
            self._cluster.lacking.pop(self.ledger_id, None)
            return
        names = ", ".join(self._with_trouble(self.core.bookies[place]) for place in missing)
        self._cluster.lacking[self.ledger_id] = f"nobody takes the place of {names}"
        if not self._mending and not self._cluster.tasks.closed:
            self._mending = True
            self._cluster.tasks.spawn(f"mend ledger {self.ledger_id}", self._mend())

    def _with_trouble(self, bookie: str) -> str:
        trouble = self._cluster.links.link(bookie).trouble
        return f"{bookie} ({trouble})" if trouble else bookie

    async def _mend(self) -> None:
        """Look for bookies as long as some are missing."""
        core = self.core
        while (core.missing or core.changing) and self.is_open:
            await asyncio.sleep(limits.BOOKKEEPER_BOOKIE_RETRY_S)
            if self._stuck_for_s() >= self._cluster.settings.quorum_wait_s:
                self.stop(
                    Unreachable(
                        f"{self._cluster.lacking.get(self.ledger_id)}: too few bookies of ledger "
                        f"{self.ledger_id} are left"
                    )
                )
                break
            if not core.missing or core.changing:
                continue
            if self._cluster.replacements(core.bookies, core.missing):
                core.look_again()
            else:
                await self._ask_missing()
        self._mending = False
        self._note_missing()

    def _stuck_for_s(self) -> float:
        """For how long the next entry has lacked bookies; 0 if it does not now.

        A bookie that answered and then took nothing does not begin the time anew.
        """
        core, now_s = self.core, self._loop.time()
        if not core.stuck:
            return 0.0
        if self._stuck is None or self._stuck[0] != core.last_confirmed:
            self._stuck = core.last_confirmed, now_s
        return now_s - self._stuck[1]

    async def _ask_missing(self) -> None:
        """A bookie that answers again and takes entries can go on."""
        core = self.core
        for place in core.missing:
            bookie = core.bookies[place]
            if bookie not in self._cluster.bookies.writable(with_quarantined=True):
                continue
            status, _ = await self._cluster.links.link(bookie).call(
                frames.read(self.ledger_id, LAST_ENTRY)
            )
            if status >= 0 and status is not Status.READ_ONLY:
                core.restored(place, bookie)

    # --- the last confirmed entry -------------------------------------------------------------

    def _tell_lac(self) -> None:
        """Tell bookies of the last entry, since no entry behind it has."""
        core, view = self.core, self.view
        lac = core.last_confirmed
        if lac <= self._lac_told or not self.is_open:
            return
        self._lac_told = lac
        packet = view.digest.lac_packet(view.ledger_id, lac)
        request = frames.write_lac(view.ledger_id, lac, view.master_key, packet)
        for place in self._write_set(lac):
            self._cluster.links.link(core.bookies[place]).ask(request, _ignored)

    # --- closing ------------------------------------------------------------------------------

    async def close(self) -> int:
        """See `LedgerWriter.close`."""
        core = self.core
        if self._closed_last is None and isinstance(core.stopped, Fenced):
            self._refuse()
        self._closing = True
        if self._close_lock is None:
            self._close_lock = asyncio.Lock()
        async with self._close_lock:
            if self._closed_last is not None:
                return self._closed_last
            await self.finished()
            if isinstance(core.stopped, Fenced | AlreadyClosed):
                self._refuse()
            last, length = core.last_confirmed, core.length
            try:
                found = await transitions.close_written(
                    self._cluster.registry, self._found, last, length
                )
            except AnabranchError as error:
                # It can be closed once more, but until then it need not be kept.
                self.stop(error)
                raise
            self._found = found
            self.view.metadata = found.metadata
            self._closed_last = last
            self._over()
            return last

    async def finished(self) -> None:
        """Wait until nothing is under way."""
        core = self.core
        while core.stopped is None and (core.pending or core.changing):
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def _note_idle(self) -> None:
        if self._idle is not None:
            idle, self._idle = self._idle, None
            if not idle.done():
                idle.set_result(None)


def _ignored(context: object, status: Status, response: pb.Response | None) -> None:
    """A bookie that was not told will be, by the next entry."""
