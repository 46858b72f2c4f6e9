"""Pulsar's flag and registrations: their forms, and what our phases make of them."""

import pytest

from anabranch.errors import FormatError
from anabranch.metadata.announced import Report, stays_behind
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.foreign_flag import (
    FLAG_PATH,
    FLAGS,
    PARTICIPANTS_PATH,
    Flag,
    may_follow,
    read_flag,
    write_flag,
)
from anabranch.migrations.freeze_copy.outsiders import Foreign, Outsiders, flag_in_use
from anabranch.migrations.freeze_copy.phases import TABLE

OXIA = "oxia://h:1/n"


def test_a_flag_has_the_bytes_that_pulsar_writes() -> None:
    flag = Flag(Outward.PREPARATION, "oxia://oxia1:6648/default")
    assert write_flag(flag) == b'{"phase":"PREPARATION","targetUrl":"oxia://oxia1:6648/default"}'
    for phase in Outward:
        assert read_flag(write_flag(Flag(phase, OXIA))) == Flag(phase, OXIA)
    assert read_flag(b'{"phase": "FAILED", "targetUrl": null, "more": 1}') == Flag(Outward.FAILED)


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"1", b"{}", b'{"phase":"ELSE"}', b'{"phase":"FAILED","targetUrl":1}'],
)
def test_what_is_no_flag_is_refused(value: bytes) -> None:
    with pytest.raises(FormatError, match="migration-coordinator"):
        read_flag(value)


def test_flag_and_registrations_belong_to_no_copy() -> None:
    assert FLAG_PATH == "/pulsar/migration-coordinator/migration"
    assert stays_behind(FLAG_PATH)
    assert stays_behind(f"{PARTICIPANTS_PATH}/id-0000000001")
    assert not stays_behind("/pulsar")
    assert not stays_behind("/pulsar/migration-coordinator-2")


def test_every_arrow_of_the_table_is_a_step_that_pulsars_processes_understand() -> None:
    for arrow in TABLE.transitions():
        before, after = FLAGS.get(arrow.old), FLAGS.get(arrow.new)
        if arrow.old in FLAGS and arrow.new in FLAGS and before is not after:
            assert before is not None
            assert after is not None
            assert may_follow(before, after), arrow
    assert not any(FLAGS[arrow.old] is Outward.COMPLETED and FLAGS.get(arrow.new) is Outward.FAILED
                   for arrow in TABLE.transitions() if arrow.old in FLAGS)  # fmt: skip
    assert {name for name in TABLE.phases if name not in FLAGS} == {
        *("preparing", "copying", "tailing", "verifying"),
        *("reverifying", "refreezing", "returning", "refencing", "reverting", "rolled back"),
    }


def seen(target: str = OXIA, *, accepts_risk: bool = False, **nodes: int) -> Outsiders:
    paths = {
        "us": "/loadbalance/brokers/us",
        "them": "/loadbalance/brokers/them",
        "b1": "/ledgers/available/b1",
        "b2": "/ledgers/available/readonly/b2",
        "p1": f"{PARTICIPANTS_PATH}/id-1",
        "p2": f"{PARTICIPANTS_PATH}/id-2",
        "p3": f"{PARTICIPANTS_PATH}/id-3",
    }
    ours = [Report("us-1f", "broker", "h", "1")]
    outsiders = Outsiders(ours, target, accepts_risk=accepts_risk)
    for name, session in nodes.items():
        outsiders.see(paths[name], session)
    return outsiders


def test_who_belongs_to_the_session_of_a_registration_can_be_led() -> None:
    found = seen(us=1, b1=5, b2=6, p1=5, p2=6)
    assert found.foreign() == [
        Foreign("b1", "bookie", "id-1", "/ledgers/available/b1"),
        Foreign("b2", "bookie", "id-2", "/ledgers/available/readonly/b2"),
    ]
    assert list(found.blockers()) == []
    (note,) = found.notes()
    assert note.startswith("bookie b1, bookie b2: not ours")
    assert "no way back" in note


@pytest.mark.goal("454.A6", part="foreign", broken_by="foreign_risk_is_taken_unasked")
def test_who_cannot_be_led_is_named_with_what_to_do() -> None:
    native = seen(b1=5, b2=6, p2=6)
    (blocker,) = native.blockers()
    assert (blocker.who, "Restart it on Pulsar's metadata driver" in blocker.why) == ("b1", True)
    (blocker,) = seen(them=3).blockers()
    assert (blocker.who, "takes no part" in blocker.why) == ("them", True)
    risky = list(seen(them=3, p1=3, p3=9).blockers())
    assert [each.who for each in risky] == ["them", "id-3"]
    assert all("accept_foreign_risk" in each.why for each in risky)
    assert ["if it is only starting" in each.why for each in risky] == [False, True]
    assert list(seen(them=3, p1=3, p3=9, accepts_risk=True).blockers()) == []
    (blocker,) = seen("zk:h:1/c", b1=5, p1=5).blockers()
    assert "to Oxia alone" in blocker.why


def test_a_flag_of_somebody_else_stands_against_a_start() -> None:
    for phase in (Outward.NOT_STARTED, Outward.FAILED):
        assert flag_in_use(Flag(phase, OXIA)) == []
    for phase in (Outward.PREPARATION, Outward.COPYING, Outward.COMPLETED):
        (blocker,) = flag_in_use(Flag(phase, OXIA))
        assert (blocker.who, phase.value in blocker.why) == (FLAG_PATH, True)
