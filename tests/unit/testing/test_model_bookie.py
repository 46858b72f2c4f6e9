"""What a model bookie keeps and answers, compared with what the protocol says of a real one."""

from functools import partial

import pytest

from anabranch.testing.bookies.records import decode, encode
from anabranch.testing.bookies.shelves import (
    LAC_HEADER,
    LAST_ENTRY,
    PACKET_HEADER,
    Record,
    RecordKind,
    Shelves,
    Status,
    Verdict,
)

KEY, OTHER_KEY = b"k" * 20, b"o" * 20


def packet(entry_id: int, *, confirmed: int = -1, ledger_id: int = 7) -> bytes:
    return PACKET_HEADER.pack(ledger_id, entry_id, confirmed, 0) + b"digest and payload"


def take(shelves: Shelves, verdict: Verdict) -> Status:
    for record in verdict.records:
        shelves.learn(record)
    return verdict.status


def filled(*entry_ids: int) -> Shelves:
    shelves = Shelves()
    for entry_id in entry_ids:
        assert take(shelves, shelves.add(7, KEY, packet(entry_id))) is Status.OK
    return shelves


def test_an_entry_is_given_back_as_it_came() -> None:
    shelves = filled(0, 3)
    assert shelves.read(7, 3).body == packet(3)
    assert shelves.read(7, LAST_ENTRY).body == packet(3)
    assert shelves.read(7, 1).status is Status.NO_ENTRY
    assert shelves.read(8, 0).status is Status.NO_LEDGER


def test_a_decision_changes_nothing_until_it_is_learnt() -> None:
    shelves = Shelves()
    verdict = shelves.add(7, KEY, packet(0))
    assert [record.kind for record in verdict.records] == [RecordKind.KEY, RecordKind.ENTRY]
    assert shelves.ledgers == {}


def test_who_does_not_know_the_key_is_refused() -> None:
    shelves = filled(0)
    notice = LAC_HEADER.pack(7, 0)
    refused = Verdict(Status.UNAUTHORIZED)
    assert shelves.add(7, OTHER_KEY, packet(1)) == refused
    assert shelves.add(7, OTHER_KEY, packet(1), recovery=True) == refused
    assert shelves.fence(7, OTHER_KEY) == refused
    assert shelves.confirm(7, OTHER_KEY, notice) == refused


def test_a_fence_keeps_the_writer_out_and_lets_recovery_in() -> None:
    shelves = filled(0)
    assert take(shelves, shelves.fence(7, KEY)) is Status.OK
    assert shelves.add(7, KEY, packet(1)) == Verdict(Status.FENCED)
    assert take(shelves, shelves.add(7, KEY, packet(1), recovery=True)) is Status.OK
    assert shelves.add(7, KEY, packet(2)) == Verdict(Status.FENCED)
    assert shelves.fence(7, KEY) == Verdict(Status.OK), "fenced already: nothing to write down"


def test_a_fence_of_a_ledger_never_seen_holds() -> None:
    shelves = Shelves()
    assert take(shelves, shelves.fence(7, KEY)) is Status.OK
    assert shelves.read(7, LAST_ENTRY).status is Status.NO_ENTRY
    assert shelves.add(7, KEY, packet(0)) == Verdict(Status.FENCED)


def test_a_full_bookie_refuses_entries_and_still_fences_and_reads() -> None:
    shelves = filled(0)
    shelves.read_only = True
    assert shelves.add(7, KEY, packet(1)) == Verdict(Status.READ_ONLY)
    assert shelves.add(7, KEY, packet(1), recovery=True) == Verdict(Status.READ_ONLY)
    assert take(shelves, shelves.fence(7, KEY)) is Status.OK
    assert shelves.read(7, 0).status is Status.OK


@pytest.mark.parametrize("body", [b"short", packet(0, ledger_id=8)])
def test_a_packet_of_something_else_is_refused(body: bytes) -> None:
    assert Shelves().add(7, KEY, body) == Verdict(Status.BAD_REQUEST)
    assert Shelves().confirm(7, KEY, body[:10]) == Verdict(Status.BAD_REQUEST)


def test_the_last_confirmed_entry_is_the_largest_ever_told() -> None:
    shelves = filled(0)
    assert shelves.read(7, 0).confirmed == -1
    take(shelves, shelves.add(7, KEY, packet(5, confirmed=3)))
    take(shelves, shelves.add(7, KEY, packet(4, confirmed=2)))
    assert shelves.read(7, 0).confirmed == 3
    assert take(shelves, shelves.confirm(7, KEY, LAC_HEADER.pack(7, 9) + b"d")) is Status.OK
    assert shelves.read(7, 0).confirmed == 9
    assert take(shelves, shelves.confirm(7, KEY, LAC_HEADER.pack(7, 1) + b"d")) is Status.OK
    notice = LAC_HEADER.pack(7, 9) + b"d"
    assert shelves.read_confirmed(7) == (Status.OK, notice, packet(5, confirmed=3))


def test_nothing_is_confirmed_where_nothing_is() -> None:
    shelves = Shelves()
    assert shelves.read_confirmed(7) == (Status.NO_LEDGER, b"", b"")
    take(shelves, shelves.fence(7, KEY))
    assert shelves.read_confirmed(7) == (Status.NO_ENTRY, b"", b"")


def test_a_journal_read_back_makes_the_same_shelves() -> None:
    shelves, again = Shelves(), Shelves()
    changes = [
        partial(shelves.add, 7, KEY, packet(0)),
        partial(shelves.add, 8, OTHER_KEY, packet(0, ledger_id=8)),
        partial(shelves.confirm, 7, KEY, LAC_HEADER.pack(7, 0)),
        partial(shelves.fence, 7, KEY),
        partial(shelves.add, 7, KEY, packet(1), recovery=True),
    ]
    for change in changes:
        verdict = change()
        take(shelves, verdict)
        for record in verdict.records:
            again.learn(decode(memoryview(b"".join(encode(record)))))
    assert again.ledgers == shelves.ledgers


def test_records_survive_their_encoding() -> None:
    record = Record(RecordKind.FENCE, 2**63 - 1)
    assert decode(memoryview(b"".join(encode(record)))) == record
