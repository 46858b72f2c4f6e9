"""Messages in chunks on a shared subscription: all chunks of one go to one consumer. Pure.

A client can only put together what it gets itself. Whoever got the first chunk gets the others;
those that it cannot take yet are set aside, so that they hold up nobody else.
"""

from collections.abc import Iterable

from anabranch.broker.consumer import Consumer
from anabranch.ids import Position
from anabranch.wire import EntryMetadata


class ChunkOwners:
    """Who gets the chunks of which message, while some are still to come."""

    __slots__ = ("_aside", "_owners")

    def __init__(self) -> None:
        self._owners: dict[str, Consumer] = {}
        self._aside: dict[Consumer, dict[Position, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._aside)

    def __contains__(self, position: Position) -> bool:
        return any(position in aside for aside in self._aside.values())

    def owner(self, metadata: EntryMetadata, otherwise: Consumer) -> Consumer:
        """Who must get a chunk; the first one of a message goes to anybody."""
        uuid, chunk, count = metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg
        if uuid is None or chunk is None or count is None:
            return otherwise
        return self._owners.get(uuid, otherwise)

    def sent(self, metadata: EntryMetadata, consumer: Consumer) -> None:
        """A consumer got a chunk; with the last one its message is complete."""
        uuid, chunk, count = metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg
        if uuid is None or chunk is None or count is None:
            return
        if chunk >= count - 1:
            self._owners.pop(uuid, None)
        else:
            self._owners[uuid] = consumer

    def set_aside(self, position: Position, consumer: Consumer) -> None:
        """A chunk waits until its consumer can take it."""
        self._aside.setdefault(consumer, {})[position] = None

    def ready(self) -> Iterable[Position]:
        """Take out what waits for consumers that can take something now."""
        for consumer in [each for each in self._aside if each.can_take]:
            yield from self._aside.pop(consumer)

    def forget(self, consumer: Consumer) -> Iterable[Position]:
        """A consumer left: return what waits for it, for others."""
        self._owners = {uuid: each for uuid, each in self._owners.items() if each is not consumer}
        return self._aside.pop(consumer, {})

    def clear(self) -> None:
        """Forget all."""
        self._owners = {}
        self._aside = {}
