"""Trees of metadata in the shape that Pulsar's have: many topics, a few small nodes below each."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from anabranch.metadata.store import Record

_TOPICS_PER_NAMESPACE: Final = 1000
_CURSORS: Final = 3
_VALUE: Final = bytes(range(256)) * 8


def made_tree(nodes: int, value_bytes: int = 500) -> Iterator[Record]:
    """So many nodes in path order, with versions from 0 to 2."""
    yield Record("/", b"", 0, 0, 0)
    made = 1
    topic = 0
    while made < nodes:
        namespace = f"/namespace-{topic // _TOPICS_PER_NAMESPACE:05}"
        paths = [f"{namespace}/topic-{topic % _TOPICS_PER_NAMESPACE:04}"]
        paths += [f"{paths[0]}/cursor-{number}" for number in range(_CURSORS)]
        if topic % _TOPICS_PER_NAMESPACE == 0:
            paths.insert(0, namespace)
        for path in paths[: nodes - made]:
            value = _VALUE[topic % 256 : topic % 256 + value_bytes]
            yield Record(path, value, topic % 16 % 3, 0, 0)
            made += 1
        topic += 1


async def each(records: Iterator[Record]) -> AsyncIterator[Record]:
    """As `restore` takes them."""
    for record in records:
        yield record
