"""Numbers of brokers, which make the names unique that they give to producers."""

from contextlib import suppress
from typing import Final

from anabranch.errors import BadVersion
from anabranch.metadata.counters import SequentialCounter
from anabranch.metadata.store import ABSENT, MetadataStore

COUNTER: Final = "/counters/producer-name"


async def next_instance(store: MetadataStore) -> int:
    """Take a number that no broker on these metadata has had, ours or Pulsar's.

    Pulsar's brokers count below the same node: a producer that got the name of another would have
    its messages taken for repeated ones where deduplication is on.
    """
    with suppress(BadVersion):
        await store.put(COUNTER, b"", ABSENT)
    node = await store.get(COUNTER)
    # Earlier builds kept the number in the node itself.
    taken = int(node.value or b"0") if node is not None else 0
    counter = SequentialCounter(store, COUNTER)
    while (number := await counter.next()) < taken:
        pass
    return number
