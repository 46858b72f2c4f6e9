"""The pure parts of the store on ZooKeeper: URLs, names, events, index keys, waves of a batch."""

import pytest

from anabranch import limits
from anabranch.errors import ConfigError, FormatError
from anabranch.metadata.store import Delete, Event, EventKind, Guard, IndexKey, Put, Version
from anabranch.metadata.zookeeper.addresses import Address, parse_ensemble
from anabranch.metadata.zookeeper.batching import waves
from anabranch.metadata.zookeeper.indexing import decode_keys, encode_keys, side_path
from anabranch.metadata.zookeeper.naming import events_of, revision_of, shown, stat_of
from anabranch.metadata.zookeeper.replies import CONTAINER_OWNER, Change, ZStat
from anabranch.metadata.zookeeper.requests import WatchKind
from anabranch.runtime.network import Tls


@pytest.mark.parametrize(
    ("url", "servers", "chroot"),
    [
        ("zk:a:1", [("a", 1)], "/"),
        ("zk:a", [("a", 2181)], "/"),
        ("zk:a/", [("a", 2181)], "/"),
        ("zk:a:1,b:2/x/y", [("a", 1), ("b", 2)], "/x/y"),
        ("zk://a:1,b/x", [("a", 1), ("b", 2181)], "/x"),
        ("zk:[::1]:5/x", [("::1", 5)], "/x"),
        ("zk:[::1]", [("::1", 2181)], "/"),
    ],
)
def test_urls(url: str, servers: list[tuple[str, int]], chroot: str) -> None:
    ensemble = parse_ensemble(url)
    assert ensemble.servers == tuple(Address(*server) for server in servers)
    assert ensemble.chroot == chroot
    assert ensemble.request_bytes_max == limits.ZOOKEEPER_REQUEST_BYTES


def test_url_may_say_how_much_the_servers_take() -> None:
    assert parse_ensemble("zk:a/x?jute.maxbuffer=4194304").request_bytes_max == 4 << 20


def test_url_may_ask_for_tls() -> None:
    assert parse_ensemble("zk:a").tls is None
    assert parse_ensemble("zk:a?tls.ca=").tls == Tls()
    url = "zk:a/x?tls.ca=/c.pem&tls.certificate=me.pem&tls.key=k.pem"
    assert parse_ensemble(url).tls == Tls("/c.pem", "me.pem", "k.pem")


@pytest.mark.parametrize(
    "url",
    [
        "zk:",
        "zk://",
        "zk:/x",
        "zk:a:0",
        "zk:a:70000",
        "zk:a:" + "9" * 5000,
        "zk:a?jute.maxbuffer=" + "9" * 5000,
        "zk:a:b",
        "zk:a,",
        "zk:a,a",
        "zk:a//x",
        "zk:a/x/",
        "zk:a?x=1",
        "zk:a?acl=closed",
        "zk:a?export.acl=",
        "zk:a?tls.key=k",
        "zk:a?tls.ca=c&tls.key=",
        "zk:a?jute.maxbuffer=",
        "zk:a?jute.maxbuffer=1",
        "zk:a?jute.maxbuffer=-5",
        "zookeeper:a",
    ],
)
def test_wrong_urls_are_named(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_ensemble(url)
    assert repr(url) in str(refused.value)


def stat(owner: int = 0, cversion: int = 0, children: int = 0) -> ZStat:
    return ZStat(11, 12, 13, 14, 3, cversion, 0, owner, 5, children, 16)


def test_stat_in_the_words_of_the_contract() -> None:
    seen = stat_of("/a", stat(owner=7), 7)
    assert seen.version == Version(seen.version.epoch, 3, 11)
    assert seen.revision == revision_of(12)
    assert (seen.created_ms, seen.modified_ms) == (13, 14)
    assert (seen.ephemeral, seen.created_by_self) == (True, True)
    assert not stat_of("/a", stat(owner=7), 8).created_by_self


@pytest.mark.parametrize("owner", [0, CONTAINER_OWNER, -(2**56) + 600_000])
def test_owners_that_are_no_sessions(owner: int) -> None:
    assert not stat(owner=owner).ephemeral
    assert not stat_of("/a", stat(owner=owner), owner).created_by_self


def test_next_sequence_counts_what_was_ever_created() -> None:
    assert stat(cversion=7, children=3).creates == 5  # five made, two of them removed
    made = 2**31 - 1
    shown_as = (2 * made - 3) % 2**32 - 2**32
    assert stat(cversion=shown_as, children=3).creates == made, "the server counts in 32 bits"


def test_hidden_names() -> None:
    names = ["b", "zookeeper", ".anabranch-indexes", "a", ".anabranch"]
    assert shown("/", names, at_top=True) == [".anabranch", "a", "b"]
    assert shown("/", names, at_top=False) == [".anabranch", "a", "b", "zookeeper"]
    assert shown("/x", names, at_top=True) == [".anabranch", "a", "b", "zookeeper"]


def test_events_leave_out_what_is_hidden_and_order_what_a_session_leaves() -> None:
    created, changed, deleted = WatchKind.CREATED, WatchKind.CHANGED, WatchKind.DELETED
    changes = [
        Change(created, 3, "/a", 1),
        Change(changed, 3, "/.anabranch-indexes/%2Fa", 1),
        Change(WatchKind.SESSION, 0, "", 1),
        Change(created, 3, "/zookeeper/x", 2),
        Change(deleted, 3, "/e/b", 3),
        Change(deleted, 3, "/e/a", 3),
        Change(deleted, 3, "/e/c/d", 3),
        Change(changed, 3, "/b", 4),
        Change(created, 3, "/a2", 4),
    ]
    assert events_of(changes, at_top=True) == [
        Event(EventKind.CREATED, "/a", revision_of(1)),
        Event(EventKind.DELETED, "/e/c/d", revision_of(3)),
        Event(EventKind.DELETED, "/e/a", revision_of(3)),
        Event(EventKind.DELETED, "/e/b", revision_of(3)),
        Event(EventKind.MODIFIED, "/b", revision_of(4)),
        Event(EventKind.CREATED, "/a2", revision_of(4)),
    ]


def test_index_keys_round_trip_and_unknown_formats_are_refused() -> None:
    keys = (IndexKey("i", "k"), IndexKey("ä", '"€'))
    assert decode_keys("/a", encode_keys(keys)) == keys
    for value in (b"", b"{}", b"[]", b'{"version": 2, "keys": []}', b'{"version": 1, "keys": [1]}'):
        with pytest.raises(FormatError, match="/a"):
            decode_keys("/a", value)
    assert side_path("/a/ä%") == "/.anabranch-indexes/%2Fa%2F%C3%A4%25"


def places(operations: list[Put | Delete]) -> list[list[int]]:
    return [[place for place, _ in wave] for wave in waves(list(enumerate(operations)))]


def test_waves_part_what_depends_on_each_other() -> None:
    guard = Guard("/f", Version(0, 0))
    assert places([]) == []
    assert places([Put("/a", b""), Put("/b", b""), Delete("/c")]) == [[0, 1, 2]]
    assert places([Put("/a", b""), Delete("/a")]) == [[0], [1]]
    assert places([Put("/a/b", b""), Delete("/a")]) == [[0], [1]]
    assert places([Delete("/a"), Put("/a/b", b"")]) == [[0], [1]]
    assert places([Put("/f", b""), Put("/a", b"", guard=guard)]) == [[0], [1]]
    assert places([Put("/a", b"", guard=guard), Put("/f", b"")]) == [[0], [1]]
    assert places([Put("/q/n-", b"", sequential=True)] * 3) == [[0, 1, 2]]
    assert places([Put("/q/n-", b"", sequential=True), Delete("/q")]) == [[0], [1]]


def test_waves_are_bounded() -> None:
    many = [Put(f"/{i}", b"") for i in range(limits.METADATA_COMMAND_OPERATIONS_MAX + 1)]
    assert [len(wave) for wave in places(many)] == [limits.METADATA_COMMAND_OPERATIONS_MAX, 1]
