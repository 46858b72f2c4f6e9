"""Changes of ledgers whose answers are lost, and bookies that a deaf or slow store hides."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from anabranch import limits
from anabranch.errors import BadVersion, ConflictError, NotFound, OutcomeUnknown, Unreachable
from anabranch.generated import bookkeeper_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.bookies import Bookies
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata, State
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.metadata.counters import Numbering, numbering_of
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import Event, EventKind, MetadataStore, Revision
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.contracts.coordination import until
from anabranch.testing.unanswered import Lose, UnansweredStore

PATHS = LedgerPaths()
OPEN = LedgerMetadata(
    ledger_id=7,
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    state=State.OPEN,
    last_entry_id=-1,
    length=0,
    digest=DigestType.CRC32C,
    password=b"",
    segments=(EnsembleSegment(0, ("bookie:3181",)),),
    ctoken=1,
)
CLOSED = replace(OPEN, state=State.CLOSED, last_entry_id=3, length=9)
lost = pytest.mark.parametrize("loss", [Lose.REQUEST, Lose.ANSWER])


@pytest.fixture
async def base() -> AsyncIterator[MemoryStore]:
    base = MemoryStore(real_runtime().clock)
    yield base
    await base.close()


@pytest.fixture
def store(base: MemoryStore) -> UnansweredStore:
    return UnansweredStore(base)


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    failures: list[BaseException] = []
    tasks = Tasks(lambda _name, failure: failures.append(failure))
    yield tasks
    await tasks.close()
    assert failures == []


def registry_on(store: object) -> LedgerRegistry:
    return LedgerRegistry(cast("MetadataStore", store), real_runtime(), PATHS)


def bookies_on(store: object) -> Bookies:
    return Bookies(cast("MetadataStore", store), real_runtime(), PATHS)


# --- ledgers ------------------------------------------------------------------------------------


@lost
async def test_a_ledger_whose_making_was_not_answered_is_known_again(
    store: UnansweredStore, base: MemoryStore, loss: Lose
) -> None:
    store.lose("put", loss)
    made = await registry_on(store).create(OPEN)
    assert made == await registry_on(base).read(7)


async def test_another_ledger_of_the_same_id_is_not_taken_for_ours(
    store: UnansweredStore, base: MemoryStore
) -> None:
    theirs = await registry_on(base).create(replace(OPEN, ctoken=2))
    store.lose("put", Lose.REQUEST)
    with pytest.raises(ConflictError, match="ledger 7 exists"):
        await registry_on(store).create(OPEN)
    assert await registry_on(base).read(7) == theirs


async def test_a_token_counts_only_after_a_lost_answer(base: MemoryStore) -> None:
    registry = registry_on(base)
    await registry.create(OPEN)
    with pytest.raises(ConflictError):
        await registry.create(OPEN)


@lost
async def test_a_change_that_was_not_answered_is_known_again(
    store: UnansweredStore, base: MemoryStore, loss: Lose
) -> None:
    made = await registry_on(base).create(OPEN)
    store.lose("put", loss)
    changed = await registry_on(store).replace(CLOSED, made.version)
    assert changed == await registry_on(base).read(7)
    assert changed.metadata == CLOSED


async def test_a_change_that_lost_to_another_is_refused_although_its_answer_was_lost(
    store: UnansweredStore, base: MemoryStore
) -> None:
    made = await registry_on(base).create(OPEN)
    theirs = await registry_on(base).replace(replace(OPEN, state=State.IN_RECOVERY), made.version)
    store.lose("put", Lose.REQUEST)
    with pytest.raises(BadVersion):
        await registry_on(store).replace(CLOSED, made.version)
    assert await registry_on(base).read(7) == theirs


@lost
async def test_a_deletion_that_was_not_answered_is_carried_out(
    store: UnansweredStore, base: MemoryStore, loss: Lose
) -> None:
    await registry_on(base).create(OPEN)
    store.lose("delete", loss)
    await registry_on(store).delete(7)
    with pytest.raises(NotFound):
        await registry_on(base).read(7)


async def test_a_connection_that_goes_before_the_question_makes_it_wait(
    store: UnansweredStore, base: MemoryStore
) -> None:
    store.lose("put", Lose.ANSWER, Lose.EVERYTHING)
    store.lose("get", Lose.EVERYTHING)
    made = await registry_on(store).create(OPEN)
    assert made == await registry_on(base).read(7)


async def test_without_a_connection_nothing_is_in_doubt(store: UnansweredStore) -> None:
    registry = registry_on(store)
    store.lose("put", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await registry.create(OPEN)
    made = await registry.create(OPEN)
    store.lose("put", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await registry.replace(CLOSED, made.version)
    store.lose("delete", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await registry.delete(7)
    assert await registry.read(7) == made


async def test_what_nobody_answers_for_long_stays_unknown(
    store: UnansweredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_UNKNOWN_OUTCOME_S_MAX", 0.05)
    registry = registry_on(store)
    store.lose("put", Lose.ANSWER, *[Lose.EVERYTHING] * 50)
    with pytest.raises(OutcomeUnknown, match="ledger 7 was made"):
        await registry.create(OPEN)


# --- bookies ------------------------------------------------------------------------------------


def info(host: str, port: int, protocol: str = "bookie-rpc") -> bytes:
    message = pb.BookieServiceInfoFormat()
    message.endpoints.add(id="http", host="elsewhere", port=8080, protocol="http")
    message.endpoints.add(id="bookie", host=host, port=port, protocol=protocol)
    message.properties["rack"] = "r1"
    return message.SerializeToString()


async def test_a_bookie_is_where_its_registration_says(base: MemoryStore, tasks: Tasks) -> None:
    await base.put(f"{PATHS.available}/one", info("10.0.0.1", 3181))
    bookies = bookies_on(base)
    await bookies.start(tasks)
    assert bookies.writable() == ("one",)
    assert bookies.address("one") == ("10.0.0.1", 3181)
    await base.put(f"{PATHS.available}/one", info("10.0.0.2", 3182))
    await until(lambda: bookies.address("one") == ("10.0.0.2", 3182))
    with pytest.raises(NotFound, match="bookie two"):
        bookies.address("two")
    assert bookies.address("two:3181") == ("two", 3181), "an id may be an address"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "registration of bookie one"),
        (b"", "no host:port"),
        (info("h", 1, "other"), "no endpoint for bookie-rpc"),
        (info("", 3181), "port 3181"),
        (info("h", 70_000), "port 70000"),
    ],
)
async def test_a_bookie_that_cannot_be_reached_is_named_and_not_used(
    base: MemoryStore, tasks: Tasks, value: bytes, reason: str
) -> None:
    await base.put(f"{PATHS.available}/one", value)
    await base.put(f"{PATHS.available}/two:3181", b"")
    bookies = bookies_on(base)
    await bookies.start(tasks)
    assert bookies.writable() == ("two:3181",)
    assert reason in bookies.faults["one"]
    with pytest.raises(NotFound, match="bookie one"):
        bookies.address("one")
    await base.put(f"{PATHS.available}/one", info("h", 3181))
    await until(lambda: bookies.writable() == ("one", "two:3181"))
    assert bookies.faults == {}


async def test_after_a_gap_everything_is_read_anew(
    store: UnansweredStore, base: MemoryStore, tasks: Tasks
) -> None:
    store.deaf = True
    await base.put(f"{PATHS.available}/a:1", b"")
    await base.put(f"{PATHS.available}/b:1", b"")
    bookies = bookies_on(store)
    await bookies.start(tasks)
    told: list[tuple[str, ...]] = []
    bookies.listen(lambda: told.append(bookies.writable()))
    bookies.quarantine("b:1")
    await asyncio.sleep(0)
    await base.delete(f"{PATHS.available}/a:1")
    await base.put(f"{PATHS.available}/c:1", b"")
    store.tell(Event(EventKind.GAP, "/", Revision(0, 9)))
    await until(lambda: bookies.writable(with_quarantined=True) == ("b:1", "c:1"))
    assert told == [("c:1",)], "one that stayed is still in quarantine"


async def test_an_event_is_not_lost_with_the_connection(
    store: UnansweredStore, base: MemoryStore, tasks: Tasks
) -> None:
    bookies = bookies_on(store)
    await bookies.start(tasks)
    store.lose("get", Lose.EVERYTHING)
    await base.put(f"{PATHS.available}/a:1", b"")
    await until(lambda: bool(bookies.writable()))
    assert bookies.writable() == ("a:1",)


async def test_a_bookie_that_failed_gets_nothing_for_a_while(
    base: MemoryStore, tasks: Tasks
) -> None:
    await base.put(f"{PATHS.available}/a:1", b"")
    await base.put(f"{PATHS.available}/b:1", b"")
    bookies = bookies_on(base)
    await bookies.start(tasks)
    bookies.quarantine("a:1")
    assert bookies.writable() == ("b:1",)
    assert bookies.writable(with_quarantined=True) == ("a:1", "b:1")
    bookies.quarantine("a:1", seconds=0)
    assert bookies.writable() == ("a:1", "b:1")
    bookies.quarantine("a:1")
    await base.delete(f"{PATHS.available}/a:1")
    await until(lambda: bookies.writable(with_quarantined=True) == ("b:1",))
    await base.put(f"{PATHS.available}/a:1", b"")
    await until(lambda: bookies.writable() == ("a:1", "b:1"))


async def test_who_no_longer_listens_is_not_told(base: MemoryStore, tasks: Tasks) -> None:
    bookies = bookies_on(base)
    await bookies.start(tasks)
    told: list[str] = []

    def listener() -> None:
        told.append("told")

    bookies.listen(listener)
    bookies.unlisten(listener)
    await base.put(f"{PATHS.available}/a:1", b"")
    await until(lambda: bookies.writable() == ("a:1",))
    assert told == []


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Lose.REQUEST, Lose.ANSWER, Lose.SESSION])
@pytest.mark.parametrize("numbering", list(Numbering))
async def test_an_id_whose_answer_was_lost_is_not_used(
    store: UnansweredStore, base: MemoryStore, numbering: Numbering, loss: Lose
) -> None:
    ids = SharedLedgerIds(cast("MetadataStore", store), real_runtime(), numbering=numbering)
    first = await ids.next()
    store.lose("put", loss)
    second = await ids.next()
    assert second == first + (2 if loss is Lose.ANSWER else 1)
    other = SharedLedgerIds(base, real_runtime(), numbering=numbering)
    assert await other.next() == second + 1


async def test_ids_get_an_upper_half_once_the_short_ones_are_used_up(
    base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = SharedLedgerIds(base, real_runtime(), numbering=Numbering.BY_CHILDREN)
    assert [await ids.next() for _ in range(2)] == [0, 1]
    monkeypatch.setattr("anabranch.ledgers.bookkeeper.id_generation.SHORT_ID_MAX", 1)
    assert await ids.next() == 1 << 32
    assert await base.children(PATHS.long_ids) == ["HOB-0000000001"]
    assert await ids.next() == 1 << 32 | 1
    assert await ids.next() == 2 << 32, "a lower half is used up too"
    other = SharedLedgerIds(base, real_runtime(), numbering=Numbering.BY_CHILDREN)
    assert await other.next() == 2 << 32 | 1


async def test_when_nothing_is_left_nothing_is_given(
    base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.ledgers.bookkeeper.id_generation.SHORT_ID_MAX", -1)
    await base.put(f"{PATHS.long_ids}/HOB-2147483647", b"")
    ids = SharedLedgerIds(base, real_runtime(), numbering=Numbering.BY_CHILDREN)
    with pytest.raises(ConflictError, match="used up"):
        await ids.next()


def test_only_on_oxia_are_ids_counted_by_changes() -> None:
    assert numbering_of("oxia://host:6648/default") is Numbering.BY_CHANGES
    for url in ("zk:host:2181", "embedded:folder", "memory:", "anabranch://host:1"):
        assert numbering_of(url) is Numbering.BY_CHILDREN
