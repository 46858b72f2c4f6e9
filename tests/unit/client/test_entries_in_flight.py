"""The entries of a producer that are not answered: order above all."""

import pytest

from anabranch.client.in_flight import InFlight, Op
from anabranch.errors import ProtocolError


def op(first: int, last: int | None = None, deadline_s: float = 30.0) -> Op[str]:
    last = first if last is None else last
    names = [str(number) for number in range(first, last + 1)]
    return Op(
        b"entry", first, last, names, is_batch=last > first, room_bytes=5, deadline_s=deadline_s
    )


def sent(*ops: Op[str]) -> InFlight[str]:
    flight: InFlight[str] = InFlight()
    for each in ops:
        flight.add(each)
        assert flight.next_to_send() is each
    return flight


def waiters(found: Op[str] | None) -> list[str]:
    assert found is not None
    return found.waiters


def test_receipts_answer_in_order_and_old_ones_mean_nothing() -> None:
    flight = sent(op(0, 4), op(5), op(6, 9))
    assert waiters(flight.receipt(0)) == ["0", "1", "2", "3", "4"]
    assert flight.receipt(0) is None
    assert waiters(flight.receipt(5)) == ["5"]
    assert waiters(flight.receipt(6)) == ["6", "7", "8", "9"]
    assert flight.receipt(6) is None


def test_a_receipt_that_overtakes_is_the_brokers_mistake() -> None:
    flight = sent(op(0), op(1))
    with pytest.raises(ProtocolError, match="receipt of 1 came before the one of 0"):
        flight.receipt(1)
    assert len(flight) == 2


@pytest.mark.parametrize("named", [1, 3], ids=["by its first message", "by its last"])
def test_a_refusal_may_overtake_and_takes_its_own_entry_only(named: int) -> None:
    flight = sent(op(0), op(1, 3), op(4))
    assert waiters(flight.refused(named)) == ["1", "2", "3"]
    assert flight.refused(named) is None
    assert waiters(flight.receipt(0)) == ["0"]
    assert waiters(flight.receipt(4)) == ["4"]


def test_after_a_loss_all_goes_out_again_in_the_old_order() -> None:
    flight = sent(op(0), op(1), op(2))
    flight.add(op(3))
    flight.receipt(0)
    flight.connection_lost()
    again = []
    while (each := flight.next_to_send()) is not None:
        again.append((each.sequence_id, each.tries))
    assert again == [(1, 2), (2, 2), (3, 1)]


def test_what_is_not_sent_yet_has_no_receipt() -> None:
    flight: InFlight[str] = InFlight()
    flight.add(op(0))
    assert flight.receipt(0) is None
    assert flight.oldest is not None


def test_time_runs_out_from_the_front() -> None:
    flight = sent(op(0, deadline_s=1.0), op(1, deadline_s=2.0))
    flight.add(op(2, deadline_s=2.5))
    flight.add(op(3, deadline_s=4.0))
    assert [each.sequence_id for each in flight.expired(2.5)] == [0, 1, 2]
    assert flight.expired(2.5) == []
    assert flight.receipt(1) is None, "its receipt comes too late"
    assert [each.sequence_id for each in flight.give_up()] == [3]
    assert len(flight) == 0
