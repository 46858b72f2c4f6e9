"""Bundles are Pulsar's: boundaries, hashes, and which bundle a topic belongs to."""

import json
from zlib import crc32

import pytest

from anabranch.errors import FormatError, InputError
from anabranch.ids import TopicName
from anabranch.ownership.bundles import (
    HIGHEST,
    Bundle,
    NamespaceBundles,
    equal_boundaries,
    hash_of,
    read_boundaries,
)
from anabranch.ownership.placement import place

NAMESPACE = "public/default"


def cut(count: int) -> NamespaceBundles:
    document = json.dumps({"bundles": {"boundaries": equal_boundaries(count)}}).encode()
    boundaries = read_boundaries(document)
    assert boundaries is not None
    return NamespaceBundles(NAMESPACE, boundaries)


def test_four_bundles_are_those_of_pulsar() -> None:
    assert equal_boundaries(4) == [
        "0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff",
    ]  # fmt: skip
    assert equal_boundaries(1) == ["0x00000000", "0xffffffff"]
    assert equal_boundaries(3)[1] == "0x55555555"


def test_the_hash_is_the_crc_of_the_full_name() -> None:
    assert hash_of(TopicName.parse("orders")) == crc32(b"persistent://public/default/orders")
    partition = TopicName.parse("orders-partition-3")
    assert hash_of(partition) == crc32(b"persistent://public/default/orders-partition-3")


ENDS = {
    0x00000000: "0x00000000_0x40000000",
    0x3FFFFFFF: "0x00000000_0x40000000",
    0x40000000: "0x40000000_0x80000000",
    0xBFFFFFFF: "0x80000000_0xc0000000",
    0xC0000000: "0xc0000000_0xffffffff",
    0xFFFFFFFF: "0xc0000000_0xffffffff",
}


@pytest.mark.goal("core.B14", part="bundles", broken_by="bundle_takes_its_upper_end")
def test_a_range_has_its_lower_end_and_not_its_upper(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, layout = TopicName.parse("orders"), cut(4)
    for place_in_ring, range_text in ENDS.items():
        monkeypatch.setattr(
            "anabranch.ownership.bundles.hash_of", lambda _, place=place_in_ring: place
        )
        bundle = layout.of(topic)
        assert bundle.range_text == range_text
        assert [other for other in layout.all if other.holds(topic)] == [bundle]
        assert bundle.path == f"/namespace/public/default/{range_text}"


def test_a_bundle_is_read_back_as_it_is_written() -> None:
    for bundle in cut(7).all:
        assert Bundle.parse(NAMESPACE, bundle.range_text) == bundle


@pytest.mark.parametrize("text", ["", "0x0", "0x00000000", "0x2_0x1", "1_2", "0x0_0x1ffffffff"])
def test_what_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no bundle"):
        Bundle.parse(NAMESPACE, text)


@pytest.mark.parametrize(
    "boundaries",
    [["0x00000000"], ["0x10000000", "0xffffffff"], ["0x00000000", "0x80000000"], ["x", "y"], [3]],
)
def test_boundaries_that_leave_topics_out_are_refused(boundaries: list[object]) -> None:
    document = json.dumps({"bundles": {"boundaries": boundaries}}).encode()
    with pytest.raises(FormatError):
        NamespaceBundles(NAMESPACE, read_boundaries(document) or ())


def test_policies_without_bundles_say_nothing() -> None:
    assert read_boundaries(b"{}") is None
    assert read_boundaries(b'{"bundles":null}') is None
    assert NamespaceBundles(NAMESPACE).all == [Bundle(NAMESPACE, 0, HIGHEST)]


def test_bundles_are_spread_evenly_and_everybody_finds_the_same() -> None:
    brokers = ["a:1", "b:1", "c:1"]
    placed = place(cut(8).all, brokers)
    counts = sorted(list(placed.values()).count(broker) for broker in brokers)
    assert counts == [2, 3, 3]
    assert place(list(reversed(cut(8).all)), brokers[::-1]) == placed


def test_a_broker_that_goes_moves_few_of_the_others() -> None:
    layout = cut(64).all
    before, after = place(layout, ["a", "b", "c", "d"]), place(layout, ["a", "b", "c"])
    stayed = [bundle for bundle in layout if before[bundle] == after[bundle]]
    assert len(stayed) >= 32
