"""Where paths lie among Oxia's keys, which shard has them, and what a point in history is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from anabranch.errors import ConfigError, NotFound, ProtocolError
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.address import OxiaAddress, parse_address
from anabranch.metadata.oxia.positions import Position, epoch_of, position_of, revision_of
from anabranch.metadata.oxia.routing import Shard, ShardMap, key_hash, parse_assignments
from anabranch.metadata.store import IndexKey, Revision

NAMES = st.text(
    st.characters(min_codepoint=0x20, exclude_characters="/", codec="utf-8"), min_size=1
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
TEXTS = st.text(st.characters(min_codepoint=0x20, codec="utf-8"))


def is_in(key_range: tuple[str, str], key: str) -> bool:
    first, end = map(keys.server_order, key_range)
    return first <= keys.server_order(key) < end


class TestKeys:
    @given(PATHS, PATHS)
    def test_range_of_children_holds_children_and_nothing_else(self, path: str, key: str) -> None:
        parent = key.rpartition("/")[0]
        assert is_in(keys.children_range(path), key) == (parent == path)
        assert is_in(keys.children_range("/"), key) == (parent == "")
        assert is_in(keys.children_range(path), f"{path}/{key[1:].partition('/')[0]}")

    @given(PATHS)
    def test_what_is_ours_is_no_path(self, path: str) -> None:
        key = keys.sequence_key(path)
        assert not keys.is_path(key)
        assert keys.parent_of_sequence_key(key) == path
        assert keys.parent_of_sequence_key(path) is None
        assert keys.server_order(key) < keys.server_order(path), "an export meets it first"

    def test_counts_of_slashes_come_first(self) -> None:
        in_order = ["b", "/z", "//", "/a/b", "/a//", "/a/b/c", "/b!/c/d", "/b/c/d", "__oxia/x"]
        mixed = in_order[::-2] + in_order[-2::-2]
        assert sorted(mixed, key=keys.server_order) == in_order

    @given(TEXTS, TEXTS)
    def test_escaped_index_keys_keep_their_order(self, one: str, two: str) -> None:
        assert "/" not in keys.escape_index(one)
        assert keys.unescape_index(keys.escape_index(one)) == one
        assert (keys.escape_index(one) < keys.escape_index(two)) == (one < two)

    @given(TEXTS, TEXTS, PATHS)
    def test_entry_of_an_index_is_read_back(self, index: str, key: str, path: str) -> None:
        from urllib.parse import quote

        prefix = keys.index_range(index, key, None)[0]
        entry = f"{prefix}\x01{quote(path, safe='')}"
        assert keys.index_entry(entry) == (path, IndexKey(index, key))
        assert is_in(keys.index_range(index, key, None), entry)
        assert is_in(keys.INDEX_ENTRIES, entry) or keys.INDEX_ENTRIES[1] == ""
        assert keys.server_order(entry) >= keys.server_order(keys.INDEX_ENTRIES[0])

    @pytest.mark.parametrize("key", ["/a", "__oxia/session/1/x", "__oxia/idx/a", "__oxia/idx/a/b"])
    def test_other_keys_are_no_entries(self, key: str) -> None:
        assert keys.index_entry(key) is None

    def test_offsets_and_sessions_stand_in_keys(self) -> None:
        first, end = keys.notifications_after(254)
        assert (first, first < end) == ("__oxia/notifications/00000000000000ff", True)
        assert keys.offset_of_notifications(first) == 255
        assert keys.session_of_key("__oxia/session/00000000000000ff") == 255


def assignments(*shards: Shard, router: int = pb.XXHASH3, namespace: str = "default") -> bytes:
    message = pb.ShardAssignments()
    found = message.namespaces[namespace]
    found.shard_key_router = router  # type: ignore[assignment]
    for shard in shards:
        item = found.assignments.add(shard=shard.number, leader=shard.leader)
        item.hash_range.first = shard.first_hash
        item.hash_range.last = shard.last_hash
    return message.SerializeToString()


HALVES = (Shard(0, "a:1", 0, 2**31 - 1), Shard(7, "b:1", 2**31, 2**32 - 1))


class TestRouting:
    def test_hash_is_the_lower_half_of_xxh3(self) -> None:
        assert key_hash("/a") == xxh3_64_intdigest(b"/a") % 2**32

    @given(TEXTS)
    def test_every_key_has_the_shard_of_its_hash(self, key: str) -> None:
        shard_map = parse_assignments(assignments(*HALVES), "default")
        assert shard_map.shard_of(key) == (0 if key_hash(key) < 2**31 else 7)
        assert shard_map.numbers == (0, 7)

    @pytest.mark.parametrize(
        "shards",
        [
            HALVES[:1],
            HALVES[1:],
            (*HALVES, Shard(8, "c:1", 5, 6)),
            (HALVES[0], HALVES[1]._replace(number=0)),
            (HALVES[0], HALVES[1]._replace(first_hash=2**31 + 1)),
        ],
    )
    def test_shards_that_do_not_fit_are_refused(self, shards: tuple[Shard, ...]) -> None:
        with pytest.raises(ProtocolError, match="shard"):
            ShardMap(shards)

    def test_other_answers_are_refused(self) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            parse_assignments(assignments(*HALVES), "nowhere")
        with pytest.raises(ProtocolError, match="XXH3"):
            parse_assignments(assignments(*HALVES, router=0), "default")
        with pytest.raises(ProtocolError, match="0 shards"):
            parse_assignments(assignments(), "default")

    @given(st.binary(max_size=200))
    def test_hostile_answers_are_refused(self, data: bytes) -> None:
        with pytest.raises((ProtocolError, NotFound)):
            parse_assignments(data, "default")


class TestAddresses:
    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("oxia://host:1/ns", OxiaAddress("host:1", "ns")),
            ("oxia://host:1", OxiaAddress("host:1", "default")),
            ("oxia://host", OxiaAddress("host:6648", "default")),
            ("oxia://[::1]:5/x", OxiaAddress("[::1]:5", "x")),
        ],
    )
    def test_good(self, url: str, address: OxiaAddress) -> None:
        assert parse_address(url) == address

    @pytest.mark.parametrize(
        "url",
        [
            *("oxia:host", "oxia://", "oxia://h:0", "oxia://h:99999", "oxia://h/", "oxia://a,b:1"),
            *("oxia://h/a/b", "oxia://h/default?tls=x", "oxia://h/a#b"),
        ],
    )
    def test_bad(self, url: str) -> None:
        with pytest.raises(ConfigError, match="oxia://HOST:PORT"):
            parse_address(url)


OFFSETS = st.lists(st.integers(-1, 2**62), min_size=1, max_size=5).map(tuple)


class TestPositions:
    @given(OFFSETS, st.integers(0, 2**20), st.data())
    def test_a_revision_says_the_whole_position(
        self, offsets: tuple[int, ...], seen: int, data: st.DataObject
    ) -> None:
        place = data.draw(st.integers(0, len(offsets) - 1))
        position = Position(offsets, place, seen)
        revision = revision_of(3, position)
        assert position_of(revision, 3, len(offsets)) == position
        assert position_of(revision, 4, len(offsets)) is None

    @given(OFFSETS, st.data())
    def test_later_is_larger(self, offsets: tuple[int, ...], data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(offsets) - 1))
        seen = data.draw(st.integers(1, 1000))
        further = list(offsets)
        further[place] += data.draw(st.integers(1, 100))
        steps = [
            revision_of(0, Position(offsets)),
            revision_of(0, Position(offsets, place, seen)),
            revision_of(0, Position(offsets, place, seen + 1)),
            revision_of(0, Position(tuple(further))),
        ]
        assert steps == sorted(set(steps))

    @given(st.integers(-5, 2**300), st.integers(1, 4))
    def test_any_number_is_a_position_or_none(self, index: int, count: int) -> None:
        position = position_of(Revision(0, index), 0, count)
        assert position is None or revision_of(0, position).index == index

    def test_other_shards_are_another_history(self) -> None:
        assert epoch_of([0, 1]) != epoch_of([0, 1, 2]) != epoch_of([1, 2, 3])
