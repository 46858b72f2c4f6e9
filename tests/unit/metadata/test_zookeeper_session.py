"""What a client believes of its ZooKeeper session, moment by moment."""

import math

import pytest

from anabranch.metadata.zookeeper.jute import Reader
from anabranch.metadata.zookeeper.replies import Welcome
from anabranch.metadata.zookeeper.session import Begun, Duty, Session


def begun(sent_s: float = 100.0) -> Session:
    session = Session(30.0)
    assert session.welcomed(0, Welcome(12_000, 7, b"p" * 16), sent_s) is Begun.NEW
    return session


def test_timeout_is_what_the_server_grants_and_asked_for_anew() -> None:
    session = begun()
    assert session.timeout_s == 12.0
    reader = Reader(session.hello())
    assert reader.integer() == 0
    assert reader.long() == 0
    assert reader.integer() == 30_000
    assert reader.long() == 7
    assert reader.buffer() == b"p" * 16


def test_a_lost_session_is_not_asked_for_again() -> None:
    session = begun()
    session.given_up()
    reader = Reader(session.hello())
    reader.integer(), reader.long(), reader.integer()
    assert reader.long() == 0
    assert reader.buffer() == bytes(16)
    assert session.valid_until_s == -math.inf


def ask(session: Session, sent_s: float, answered_s: float) -> None:
    assert session.duties(sent_s, connected=True) == [Duty.ASK]
    session.answered(answered_s)


def test_leader_is_asked_again_as_soon_as_it_has_answered() -> None:
    session = begun(100.0)
    assert session.duties(100.4, connected=True) == []
    assert session.duties(100.5, connected=True) == [Duty.ASK]
    assert session.duties(101.0, connected=True) == []
    session.answered(101.1)
    assert session.duties(101.1, connected=True) == [Duty.ASK]


def test_lease_counts_from_a_question_that_the_leader_must_have_heard_of() -> None:
    """Its server is asked for news within 3 s of its answer, replies, and that was received."""
    session = begun(100.0)
    ask(session, 101.0, 101.5)
    ask(session, 104.4, 104.5)
    ask(session, 105.0, 105.1)
    assert session.valid_until_s == 112.0, "the leader may not have asked between 101.5 and 104.4"
    ask(session, 106.0, 106.1)
    assert session.valid_until_s == 113.0, "105.0 was answered behind its asking, 106.0 behind that"


def test_answers_that_follow_at_once_renew_nothing() -> None:
    """A server that has lost its leader's ear may have answered all of them before."""
    session = begun(100.0)
    for number in range(6):
        ask(session, 101.0 + number / 2, 101.1 + number / 2)
    assert session.valid_until_s == 112.0
    ask(session, 104.1, 104.2)
    ask(session, 104.6, 104.7)
    assert session.valid_until_s == 113.0


def test_what_another_server_answered_renews_nothing() -> None:
    session = begun(100.0)
    ask(session, 101.0, 101.1)
    session.disconnected()
    ask(session, 105.0, 105.1)
    ask(session, 106.0, 106.1)
    assert session.valid_until_s == 112.0


def test_answer_of_an_earlier_connection_renews_nothing() -> None:
    session = begun(100.0)
    ask(session, 101.0, 101.1)
    ask(session, 105.0, 105.1)
    assert session.duties(106.0, connected=True) == [Duty.ASK]
    session.disconnected()
    session.answered(106.1)
    assert session.valid_until_s == 112.0


def test_silent_connection_is_given_up_when_it_was_found_silent_twice() -> None:
    session = begun(100.0)
    assert session.duties(104.0, connected=True) == [Duty.ASK]
    assert session.duties(105.0, connected=True) == []
    assert session.duties(106.0, connected=True) == []
    assert session.duties(106.5, connected=True) == [Duty.HANG_UP]


def test_session_is_given_up_before_the_server_can_end_it() -> None:
    session = begun(100.0)
    assert session.duties(109.9, connected=False) == []
    assert session.duties(110.0, connected=False) == [Duty.GIVE_UP]
    session.given_up()
    assert session.duties(111.0, connected=False) == []


@pytest.mark.parametrize("welcome", [Welcome(0, 7, b""), Welcome(-1, 7, b""), Welcome(10, 0, b"")])
def test_expired(welcome: Welcome) -> None:
    session = begun()
    assert session.welcomed(7, welcome, 105.0) is Begun.EXPIRED
    assert not session.alive


def test_resumed_and_replaced() -> None:
    session = begun()
    assert session.welcomed(7, Welcome(12_000, 7, b"q"), 105.0) is Begun.RESUMED
    assert session.valid_until_s == 117.0
    session.given_up()
    assert session.welcomed(0, Welcome(12_000, 8, b"r"), 130.0) is Begun.NEW
    assert session.number == 8
