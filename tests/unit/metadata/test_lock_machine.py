"""The states of a lock, and what each event makes of them; no store is needed."""

import pytest

from anabranch.metadata.lock_machine import (
    NEXT,
    Do,
    Finding,
    LockMachine,
    LockState,
    Step,
    judge,
)
from anabranch.metadata.store import (
    Event,
    EventKind,
    Guard,
    Node,
    Revision,
    SessionEvent,
    Stat,
    Version,
)

PATH, VALUE = "/locks/mill", b"ash"


def stat(index: int, *, native: int = 0, mine: bool = True, ephemeral: bool = True) -> Stat:
    version = Version(0, native, index - native)
    return Stat(PATH, version, Revision(1, index), 0, 0, ephemeral, mine)


def node(value: bytes, at: Stat) -> Node:
    return Node(value, at)


def event(kind: EventKind, index: int) -> Event:
    return Event(kind, PATH, Revision(1, index))


def held(index: int = 5) -> LockMachine:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    machine.created(stat(index))
    assert machine.state is LockState.HELD
    return machine


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (None, Finding.FREE),
        (node(b"birch", stat(3, mine=False)), Finding.TAKEN),
        (node(VALUE, stat(3, mine=False)), Finding.LEFT_OVER),
        (node(VALUE, stat(3, mine=True)), Finding.LEFT_OVER),
        (node(b"another", stat(3, mine=True)), Finding.LEFT_OVER),
        (node(VALUE, stat(3, mine=False, ephemeral=False)), Finding.TAKEN),
    ],
)
def test_what_a_node_means_to_who_wants_the_lock(found: Node | None, finding: Finding) -> None:
    assert judge(found, VALUE) is finding


def test_an_end_is_an_end() -> None:
    for state in (LockState.BUSY, LockState.RELEASED, LockState.LOST):
        assert not NEXT[state]
    reached = {state for following in NEXT.values() for state in following}
    assert reached == set(LockState), "every state can be reached"


def test_taking_a_free_lock() -> None:
    machine = LockMachine(PATH, VALUE)
    assert machine.begin() == Step(Do.CREATE)
    assert machine.created(stat(5)) is None
    assert machine.token == Revision(0, 5)
    assert machine.guard() == Guard(PATH, stat(5).version)


def test_a_leftover_is_removed_as_it_was_found() -> None:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    assert machine.not_created() == Step(Do.LOOK)
    old = stat(3, mine=False)
    assert machine.found(node(VALUE, old)) == Step(Do.REMOVE, old.version)
    assert machine.not_removed() == Step(Do.LOOK)
    assert machine.found(node(VALUE, old)) == Step(Do.REMOVE, old.version)
    assert machine.removed() == Step(Do.CREATE)


def test_busy_names_the_holder() -> None:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    machine.not_created()
    assert machine.found(node(b"birch", stat(3, mine=False))) is None
    assert (machine.state, machine.holder) == (LockState.BUSY, b"birch")


def test_a_deletion_told_of_before_the_answer_counts() -> None:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    machine.changed(event(EventKind.DELETED, 6))
    machine.created(stat(5))
    assert machine.state is LockState.LOST


def test_a_deletion_of_an_earlier_node_does_not_count() -> None:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    machine.changed(event(EventKind.DELETED, 4))
    assert machine.created(stat(5)) is None
    assert machine.changed(event(EventKind.DELETED, 3)) is None
    assert machine.state is LockState.HELD


def test_a_gap_before_the_answer_asks_for_a_look() -> None:
    machine = LockMachine(PATH, VALUE)
    machine.begin()
    machine.changed(Event(EventKind.GAP, "/", Revision(1, 9)))
    assert machine.created(stat(5)) == Step(Do.LOOK)


@pytest.mark.parametrize(
    ("news", "same_session", "step", "state"),
    [
        (SessionEvent.CONNECTION_LOST, True, None, LockState.HELD),
        (SessionEvent.RECONNECTED, True, Step(Do.LOOK), LockState.HELD),
        (SessionEvent.RECONNECTED, False, None, LockState.LOST),
        (SessionEvent.SESSION_LOST, True, None, LockState.LOST),
        (SessionEvent.SESSION_REESTABLISHED, False, None, LockState.LOST),
        (SessionEvent.SESSION_REESTABLISHED, True, None, LockState.HELD),
    ],
)
def test_what_a_session_goes_through(
    news: SessionEvent, same_session: bool, step: Step | None, state: LockState
) -> None:
    machine = held()
    assert machine.session_changed(news, same_session=same_session) == step
    assert machine.state is state


def test_a_look_that_finds_the_same_node_changes_nothing() -> None:
    machine = held()
    assert machine.changed(event(EventKind.MODIFIED, 7)) == Step(Do.LOOK)
    machine.confirmed(node(VALUE, stat(5)))
    assert machine.state is LockState.HELD


@pytest.mark.parametrize("found", [None, node(b"birch", stat(8, mine=False)), node(VALUE, stat(8))])
def test_a_look_that_finds_another_node_ends_it(found: Node | None) -> None:
    machine = held()
    machine.confirmed(found)
    assert machine.state is LockState.LOST
    assert machine.lost_because


def test_a_look_from_before_an_update_is_out_of_date() -> None:
    machine = held()
    machine.update(b"ash 2")
    machine.updated(stat(6, native=1))
    machine.confirmed(node(VALUE, stat(5)))
    assert machine.state is LockState.HELD
    assert machine.version == stat(6, native=1).version


def test_an_update_that_was_not_answered_is_recognized() -> None:
    machine = held()
    machine.update(b"ash 2")
    machine.confirmed(node(b"ash 2", stat(6, native=1)))
    assert machine.state is LockState.HELD
    assert (machine.value, machine.version) == (b"ash 2", stat(6, native=1).version)
    assert machine.token == Revision(0, 5), "it is still the same holder"
    machine.updated(stat(6, native=1))
    assert machine.value == b"ash 2", "the answer comes after all"


def test_releasing_asks_for_the_very_node() -> None:
    machine = held()
    assert machine.release() == Step(Do.REMOVE, stat(5).version)
    machine.let_go()
    assert machine.state is LockState.RELEASED
    assert machine.release() is None
    assert machine.changed(event(EventKind.DELETED, 6)) is None
    machine.lose("too late")
    assert machine.state is LockState.RELEASED


def test_what_is_not_in_the_table_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no way"):
        held().removed()
