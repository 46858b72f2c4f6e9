"""Planted bugs of the client of bookies: what it promises to its callers."""

import math
from collections.abc import Callable, Sequence

from anabranch.errors import Unreachable
from anabranch.ledgers.bookkeeper.digests import PacketDigest
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.ledger_registry import Found, LedgerRegistry
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.ledgers.store import AppendDone
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted

_WRITER = "anabranch.ledgers.bookkeeper.ledger_writer:BookKeeperWriter."
_WRITING = "anabranch.ledgers.bookkeeper.writer:LedgerWriting."
_BITS = 32


@planted("one_bookie_counts_twice", target=_WRITING + "confirmed")
def one_bookie_counts_twice(
    self: LedgerWriting, adds: Sequence[Add], place: int, bookie: str
) -> None:
    """Answers are counted, not the bookies that gave them."""
    for add in adds:
        if add.acks >> place & 1:
            add.acks |= 1 << (place + _BITS)
    original("one_bookie_counts_twice")(self, adds, place, bookie)


@planted("entries_are_confirmed_as_they_come", target=_WRITING + "confirmed")
def entries_are_confirmed_as_they_come(
    self: LedgerWriting, adds: Sequence[Add], place: int, bookie: str
) -> None:
    """An entry does not wait for those before it."""
    original("entries_are_confirmed_as_they_come")(self, adds, place, bookie)
    for add in adds:
        if add in self.pending and add.acks.bit_count() >= self.quorums.ack and not self.changing:
            self.pending.remove(add)
            self._output.complete(add)


@planted("a_lost_connection_ends_the_ledger", target=_WRITER + "not_stored")
def a_lost_connection_ends_the_ledger(
    self: BookKeeperWriter, add: Add, place: int, bookie: str, status: Status
) -> None:
    """No other bookie is looked for."""
    if status is Status.UNREACHABLE:
        self.stop(Unreachable(f"{bookie} is lost"))
    else:
        original("a_lost_connection_ends_the_ledger")(self, add, place, bookie, status)


@planted("an_answer_counts_as_taking_entries", target=_WRITER + "_ask_missing")
async def an_answer_counts_as_taking_entries(self: BookKeeperWriter) -> None:
    """The wait for bookies begins anew when one of them has answered, whether it takes entries."""
    missing = self.core.missing
    await original("an_answer_counts_as_taking_entries")(self)
    if self.core.missing != missing:
        self._stuck = None


@planted("last_entry_is_never_told", target=_WRITER + "_tell_lac")
def last_entry_is_never_told(self: BookKeeperWriter) -> None:
    """Bookies hear of the last confirmed entry by the next entry only."""


@planted(
    "packets_know_of_nothing_confirmed",
    target="anabranch.ledgers.bookkeeper.digests:PacketDigest.header_and_digest",
)
def packets_know_of_nothing_confirmed(
    self: PacketDigest,
    ledger_id: int,
    entry_id: int,
    last_confirmed: int,
    length: int,
    payload: Buffer,
) -> bytes:
    """Entries do not carry the last confirmed one."""
    made: bytes = original("packets_know_of_nothing_confirmed")(
        self, ledger_id, entry_id, -1, length, payload
    )
    return made


@planted("appends_to_bookies_press_nobody", target=_WRITER + "append")
def appends_to_bookies_press_nobody(
    self: BookKeeperWriter, payload: Buffer, done: AppendDone
) -> int:
    """What waits for bookies is counted when it is over, not when it begins."""

    def over(entry_id: int, error: Exception | None) -> None:
        self._pressure.hold(len(payload))
        done(entry_id, error)

    entry_id: int = original("appends_to_bookies_press_nobody")(self, payload, over)
    self._pressure.let_go(len(payload))
    return entry_id


@planted("a_fence_is_taken_for_a_failure", target=_WRITER + "not_stored")
def a_fence_is_taken_for_a_failure(
    self: BookKeeperWriter, add: Add, place: int, bookie: str, status: Status
) -> None:
    """A writer that was fenced goes on as if the bookie were lost."""
    if status is Status.FENCED:
        status = Status.IO_ERROR
    original("a_fence_is_taken_for_a_failure")(self, add, place, bookie, status)


@planted("entries_of_any_size_go_to_bookies", target=_WRITER + "append")
def entries_of_any_size_go_to_bookies(
    self: BookKeeperWriter, payload: Buffer, done: AppendDone
) -> int:
    """That bookies take no larger frames is found out by sending one."""
    self._payload_bytes_max = max(self._payload_bytes_max, len(payload))
    entry_id: int = original("entries_of_any_size_go_to_bookies")(self, payload, done)
    return entry_id


@planted(
    "ensemble_changes_wait_for_ever",
    target="anabranch.ledgers.bookkeeper.transitions:change_ensemble",
)
async def ensemble_changes_wait_for_ever(
    registry: LedgerRegistry,
    known: Found,
    first_entry_id: int,
    bookies: tuple[str, ...],
    _wait_s: float,
    waited_for: Callable[[], bool],
) -> Found:
    """As long as the metadata store is away, nobody is told anything."""
    found: Found = await original("ensemble_changes_wait_for_ever")(
        registry, known, first_entry_id, bookies, math.inf, waited_for
    )
    return found
