"""The URLs of ledger stores: what they say, and what is wrong with one."""

import pytest

from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import (
    BookKeeperAddress,
    check_ledgers_url,
    identity,
    parse_bookkeeper,
)
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.credentials import LedgerCredentials
from anabranch.ledgers.factory import bookkeeper_settings, open_ledgers
from anabranch.runtime.real import real_runtime


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("bookkeeper:", BookKeeperAddress()),
        ("bookkeeper:?ensemble=3&write=3&ack=2", BookKeeperAddress("", 3, 3, 2)),
        ("bookkeeper:?ensemble=5", BookKeeperAddress("", 5, 3, 2)),
        ("bookkeeper:?ensemble=1", BookKeeperAddress("", 1, 1, 1)),
        ("bookkeeper:?ensemble=2", BookKeeperAddress("", 2, 2, 2)),
        ("bookkeeper:?ensemble=3&write=1", BookKeeperAddress("", 3, 1, 1)),
        ("bookkeeper:?digest=hmac&root=/a/b", BookKeeperAddress("", 3, 3, 2, "hmac", "/a/b")),
        ("bookkeeper:?frame_bytes=9000000", BookKeeperAddress(frame_bytes=9_000_000)),
        (
            "bookkeeper:zk:one:2181,two:2181/chroot?ensemble=2&write=2&ack=1",
            BookKeeperAddress("zk:one:2181,two:2181/chroot", 2, 2, 1),
        ),
    ],
)
def test_what_a_url_says(url: str, meant: BookKeeperAddress) -> None:
    check_ledgers_url(url)
    assert parse_bookkeeper(url) == meant


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("bookkeeper:?ensemble=0", "ensemble .* is a number of bookies from 1"),
        ("bookkeeper:?ack=two", "ack .* is a number of bookies from 1"),
        ("bookkeeper:?ensemble=100000", "from 1 to 1000"),
        ("bookkeeper:?ensemble=2&write=3", "ensemble 2, write 3, ack 2"),
        ("bookkeeper:?write=2&ack=3", "write 2, ack 3: an entry is written to no more"),
        ("bookkeeper:?ensemble=3&ensemble=2", "each once"),
        ("bookkeeper:?ensemble", "ensemble .* is a number of bookies"),
        ("bookkeeper:?password=x", "unknown option 'password' .* ledgers_credentials"),
        ("bookkeeper:?digest=md5", "digest .* is one of crc32c, crc32, hmac, none, not 'md5'"),
        ("bookkeeper:?root=ledgers", "root .* is a path such as /ledgers"),
        ("bookkeeper:?frame_bytes=1k", "frame_bytes .* is a number of bytes from 1048576"),
        ("memory:x", "takes no name"),
        ("bookies:x", "unknown ledger store 'bookies:x': known are"),
        ("", "unknown ledger store"),
    ],
)
def test_what_is_wrong_with_a_url(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_ledgers_url(url)


def test_options_do_not_say_which_store_it_is() -> None:
    assert identity("bookkeeper:zk:h:1/c?ensemble=3") == identity("bookkeeper:zk:h:1/c")
    assert identity("bookkeeper:?ack=1") == "bookkeeper:"
    assert identity("bookkeeper:?root=/ledgers") == "bookkeeper:"
    assert identity("bookkeeper:zk:h:1?ack=1&root=/x") == "bookkeeper:zk:h:1?root=/x", (
        "below another root there are other ledgers"
    )
    assert identity("embedded:/a") != identity("embedded:/b")


def test_secrets_come_from_the_credentials() -> None:
    credentials = LedgerCredentials(b"secret", ("plug-in", b"token"))
    url = "bookkeeper:?digest=hmac&root=/x&frame_bytes=6000000"
    settings = bookkeeper_settings(url, credentials)
    assert settings.frame_bytes_max == 6_000_000
    assert settings.digest is DigestType.HMAC
    assert (settings.password, settings.auth) == (b"secret", ("plug-in", b"token"))
    assert settings.ledgers_root == "/x"
    assert "secret" not in repr(settings) + repr(credentials)


async def test_bookies_are_not_found_without_their_metadata() -> None:
    with pytest.raises(ConfigError, match="needs the metadata store"):
        await open_ledgers("bookkeeper:", real_runtime())
