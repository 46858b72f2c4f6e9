"""Planted bugs of open ledgers that others open to repair them, or that lack a bookie."""

from anabranch.errors import Fenced
from anabranch.ledgers.bookkeeper.lookout import Lookout
from anabranch.managed_ledger.appender import Appender
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.testing.planted import original, planted

_APPENDER = "anabranch.managed_ledger.appender:Appender."


@planted(
    "a_taken_ledger_ends_the_topic",
    target="anabranch.managed_ledger.published_chain:PublishedChain._end_of_taken",
)
async def a_taken_ledger_ends_the_topic(self: PublishedChain, error: Fenced) -> int:
    """Who opened the ledger is taken for one who does so again and again: another owner."""
    self._fenced_s = self._env.runtime.clock.monotonic_s()
    result: int = await original("a_taken_ledger_ends_the_topic")(self, error)
    return result


@planted("what_a_taken_ledger_has_is_written_again", target=_APPENDER + "settle")
def what_a_taken_ledger_has_is_written_again(self: Appender, stored: range) -> None:
    """An entry that was found in the ledger is answered, and goes to the next one as well."""
    again = list(self._unsettled)[: len(stored)]
    original("what_a_taken_ledger_has_is_written_again")(self, stored)
    for data, _, began_s in reversed(again):
        self._line().appendleft((data, lambda *_: None, began_s))
        self._count_waiting(len(data))
        self.pending_bytes += len(data)


@planted("what_was_under_way_counts_as_stored", target=_APPENDER + "settle")
def what_was_under_way_counts_as_stored(self: Appender, stored: range) -> None:
    """Every entry that was sent to a ledger is answered, wherever the ledger ends."""
    sent = range(stored.start, stored.start + len(self._unsettled))
    original("what_was_under_way_counts_as_stored")(self, sent)


@planted(
    "who_lost_its_ledgers_goes_on_for_ever",
    target="anabranch.managed_ledger.published_chain:PublishedChain._end_of_taken",
)
async def who_lost_its_ledgers_goes_on_for_ever(self: PublishedChain, error: Fenced) -> int:
    """However often its ledgers are taken, an owner begins another one."""
    self._fenced_s = float("-inf")
    last: int = await original("who_lost_its_ledgers_goes_on_for_ever")(self, error)
    return last


@planted(
    "idle_ledgers_keep_lost_bookies",
    target="anabranch.ledgers.bookkeeper.lookout:Lookout._leave",
)
async def idle_ledgers_keep_lost_bookies(self: Lookout) -> None:
    """A bookie is missed by those alone that append."""
