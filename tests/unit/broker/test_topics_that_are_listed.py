"""Which stored topics clients are told of."""

import pytest

from anabranch.broker.topic_lists import is_listed


@pytest.mark.parametrize("local", ["orders", "orders-partition-3", "__orders"])
def test_topics_of_users_are_listed(local: str) -> None:
    assert is_listed(f"persistent://public/default/{local}")


@pytest.mark.parametrize("local", ["__change_events", "orders-sub__transaction_pending_ack"])
def test_topics_of_the_system_are_not(local: str) -> None:
    assert not is_listed(f"persistent://public/default/{local}")


def test_a_stored_name_that_is_refused_here_does_not_spoil_the_list() -> None:
    assert not is_listed("persistent://public/default/a%2Fb")
