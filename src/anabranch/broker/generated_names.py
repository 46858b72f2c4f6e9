"""Numbers of brokers, which make the names unique that they give to producers."""

from contextlib import suppress
from typing import Final

from anabranch.errors import BadVersion, FormatError
from anabranch.metadata.counters import Numbering, SequentialCounter
from anabranch.metadata.store import ABSENT, MetadataStore

COUNTER: Final = "/counters/producer-name"


async def next_instance(store: MetadataStore, numbering: Numbering = Numbering.BY_CHILDREN) -> int:
    """Take a number that no broker on these metadata has had, ours or Pulsar's.

    Pulsar's brokers count at the same node: a producer that got the name of another would have
    its messages taken for repeated ones where deduplication is on.

    Raises:
        FormatError: if the node holds something that is not ours or Pulsar's; it is left as it is.
    """
    with suppress(BadVersion):
        await store.put(COUNTER, b"", ABSENT)
    node = await store.get(COUNTER)
    kept = b"" if node is None else node.value
    taken = _kept_in(kept)
    counter = SequentialCounter(store, COUNTER)
    while True:
        if numbering is Numbering.BY_CHANGES:
            # What earlier builds kept stays: who ends here before the count of changes has come
            # so far leaves it to the next one.
            number = (await store.put(COUNTER, kept)).version.native
        else:
            number = await counter.next()
        if number >= taken:
            return number


def _kept_in(value: bytes) -> int:
    """The number that earlier builds kept in the node itself."""
    if not value:
        return 0
    if not value.isdigit():
        raise FormatError(f"{COUNTER} holds no number: {value[:40]!r}")
    return int(value)
