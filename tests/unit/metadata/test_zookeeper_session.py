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


def test_lease_counts_from_when_the_ping_was_sent() -> None:
    session = begun(100.0)
    assert session.valid_until_s == 112.0
    assert session.duties(103.9, connected=True) == []
    assert session.duties(104.0, connected=True) == [Duty.PING]
    assert session.valid_until_s == 112.0, "not before it is answered"
    session.ping_answered()
    assert session.valid_until_s == 116.0


def test_answer_of_an_earlier_connection_renews_nothing() -> None:
    session = begun(100.0)
    assert session.duties(104.0, connected=True) == [Duty.PING]
    session.disconnected()
    session.ping_answered()
    assert session.valid_until_s == 112.0


def test_silent_connection_is_given_up_when_it_was_found_silent_twice() -> None:
    session = begun(100.0)
    assert session.duties(104.0, connected=True) == [Duty.PING]
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
