"""Messages in chunks on a shared subscription: all chunks of one go to one consumer. Pure.

A client can only put together what it gets itself. Whoever got the first chunk gets the others;
those that it cannot take yet are set aside, so that they hold up nobody else.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from anabranch.broker.consumer import Consumer
from anabranch.broker.limits import CHUNKED_MESSAGES_MAX
from anabranch.ids import Position
from anabranch.wire import EntryMetadata

_NAME_CHARACTERS_MAX: Final = 128


class ChunkOwners:
    """Who gets the chunks of which message, while some are still to come."""

    __slots__ = ("_aside", "_owners")

    def __init__(self) -> None:
        self._owners: dict[str, Consumer] = {}
        """Those whose first chunk was sent last are at the end."""
        self._aside: dict[Consumer, dict[Position, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._aside)

    def __contains__(self, position: Position) -> bool:
        return any(position in aside for aside in self._aside.values())

    def owner(self, metadata: EntryMetadata, otherwise: Consumer) -> Consumer:
        """Who must get a chunk; the first one of a message goes to anybody."""
        name, chunk, count = _name_of(metadata), metadata.chunk_id, metadata.num_chunks_from_msg
        if name is None or chunk is None or count is None:
            return otherwise
        return self._owners.get(name, otherwise)

    def sent(self, metadata: EntryMetadata, consumer: Consumer) -> None:
        """A consumer got a chunk; with the last one its message is complete."""
        name, chunk, count = _name_of(metadata), metadata.chunk_id, metadata.num_chunks_from_msg
        if name is None or chunk is None or count is None:
            return
        if chunk >= count - 1:
            self._owners.pop(name, None)
            return
        self._owners[name] = consumer
        if len(self._owners) > CHUNKED_MESSAGES_MAX:
            del self._owners[next(iter(self._owners))]  # its last chunk may never come

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


def _name_of(metadata: EntryMetadata) -> str | None:
    """What the chunks of one message share, no longer than it need be."""
    uuid = metadata.uuid
    if uuid is None or len(uuid) <= _NAME_CHARACTERS_MAX:
        return uuid
    return sha256(uuid.encode("utf-8", "replace")).hexdigest()
