"""Names and positions: one parser, and what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidName
from anabranch.ids import (
    Position,
    TopicName,
    check_subscription_name,
    decode_segment,
    encode_segment,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("persistent://a/b/c/with/slashes", "persistent://a/b/c/with/slashes"),
    ],
)
def test_short_and_full_names(text: str, full: str) -> None:
    assert str(TopicName.parse(text)) == full


@pytest.mark.goal("core.S6", part="parser", broken_by="names_may_be_unprintable")
@pytest.mark.parametrize(
    "text",
    [
        "",
        " orders",
        "orders ",
        "or\nders",
        "or\x00ders",
        "kafka://a/b/c",
        "persistent://a/b",
        "a/b",
        "persistent://../b/c",
        "persistent://a/../c",
        "persistent://a/b c/d",
        "persistent://a%2Fb/ns/c",
        "persistent://a/b/",
        "persistent:///b/c",
        "x" * 2000,
        "persistent://a/b/\ud800",
    ],
)
def test_names_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.parse(text)


@pytest.mark.goal("core.S6", part="double-encoded", broken_by="names_may_be_disguised")
@pytest.mark.parametrize("local", ["..", ".", "a/../b", "a%2Fb", "%2e%2e", "%252e", "a//b", "a/"])
def test_names_that_become_others_are_refused(local: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.parse(f"persistent://t/n/{local}")


@pytest.mark.parametrize(
    "suffix", ["007", "00", "+7", "-1", "2147483648", "9" * 900, "\u0667", "1_0", " 1"]
)
def test_a_partition_has_one_name_only(suffix: str) -> None:
    """As in Pulsar: what is no number as it would be written is a topic like any other."""
    topic = TopicName("persistent", "t", "n", f"orders-partition-{suffix}")
    assert topic.partition == -1
    assert topic.partitioned_local == topic.local


def test_partition_suffix() -> None:
    partition = TopicName.parse("persistent://t/n/orders-partition-12")
    assert partition.partition == 12
    assert partition.partitioned_local == "orders"
    assert partition.schema_id == "t/n/orders"
    assert TopicName.parse("orders-partition-x").partition == -1


def test_local_names_become_one_path_segment() -> None:
    topic = TopicName.parse("persistent://t/n/a/b c%*~")
    assert topic.managed_ledger_name == "t/n/persistent/a%2Fb+c%25*%7E"
    for dots in (".", ".."):
        assert encode_segment(dots) not in (".", "..")


@given(st.text(min_size=1))
def test_segments_decode_to_what_was_encoded(name: str) -> None:
    if not name.isprintable():
        return
    segment = encode_segment(name)
    assert "/" not in segment
    assert decode_segment(segment) == name


def test_positions_order_as_entries_do() -> None:
    assert Position(3, 9) < Position(4, -1) < Position(4, 0)
    assert str(Position(4, 0)) == "4:0"


@pytest.mark.goal("core.S6", part="subscriptions", broken_by="names_may_be_unprintable")
@pytest.mark.parametrize("name", ["", " a", "a\t", "\x7f", "..", "%2e%2e"])
def test_bad_subscription_names(name: str) -> None:
    with pytest.raises(InvalidName):
        check_subscription_name(name)
