"""What ZooKeeper cannot hold is found before a copy writes anything, whatever the source is."""

import pytest

from anabranch import limits
from anabranch.errors import ConfigError, InputError
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import AccessRight, IndexKey, Record
from anabranch.metadata.transfer.copying import Copy, CopyOptions
from anabranch.metadata.transfer.keeping import EVERYTHING, keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each

SEQUENCE_MAX = limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX
PLAIN = Record("/a", b"1", 0, 1, 1)


@pytest.mark.broken_by("copy_asks_too_late_what_fits")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (PLAIN._replace(path="/€/𝄞"), r"2 of .*first is /€/𝄞: .*U\+FFFF"),
        (PLAIN._replace(path="/zookeeper/quota"), "/zookeeper: the name is reserved"),
        (PLAIN._replace(path="/b/.anabranch-x"), "/b/.anabranch-x: the name is reserved"),
        (
            PLAIN._replace(path="/large", value=b"x" * limits.METADATA_VALUE_BYTES_MAX),
            r"/large: .*takes 1048575: raise jute\.maxbuffer",
        ),
        (
            PLAIN._replace(path="/counter", next_sequence=SEQUENCE_MAX + 1),
            "/counter: its next sequence number 1000001 is above the 1000000",
        ),
    ],
)
async def test_refused_before_anything_is_written(wrong: Record, said: str) -> None:
    clock = real_runtime().clock
    source, target = MemoryStore(clock), MemoryStore(clock)
    await source.restore(each([PLAIN, wrong, wrong._replace(path=f"{wrong.path}-too")]))
    origin = StoreSource(source, "source:", "/", EVERYTHING)
    copy = Copy(real_runtime(), origin, target, "t", keeping_of("zk:h:1"), CopyOptions())
    with pytest.raises(InputError, match=said):
        await copy.run()
    assert await target.children("/") == []


def test_what_fits_is_taken() -> None:
    small = keeping_of("zk:h:1/chroot")
    large = keeping_of(f"zk:h:1/chroot?jute.maxbuffer={2 * limits.MIB}")
    whole = PLAIN._replace(value=b"x" * limits.METADATA_VALUE_BYTES_MAX)
    nearly = PLAIN._replace(value=b"x" * (limits.ZOOKEEPER_REQUEST_BYTES - 300))
    keys = (IndexKey("i" * 100, "k" * 100),)
    rights = (AccessRight(31, "digest", "b:" + "x" * 200),)
    assert small.why_not(whole) is not None
    assert large.why_not(whole) is None
    assert small.why_not(nearly) is None
    assert small.why_not(nearly._replace(indexes=keys)) is not None
    assert small.why_not(nearly._replace(access=rights)) is not None
    assert small.why_not(PLAIN._replace(next_sequence=SEQUENCE_MAX)) is None
    assert small.why_not(PLAIN._replace(path="/zookeeper")) is None, "below a chroot it is free"
    assert EVERYTHING.why_not(whole._replace(path="/𝄞")) is None


def test_wrong_url_is_said() -> None:
    with pytest.raises(ConfigError, match="zk:"):
        keeping_of("zk:")
