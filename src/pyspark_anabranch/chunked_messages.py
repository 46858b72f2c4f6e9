"""Messages that their producers cut into chunks, put together again. Pure.

Such a message is where its last chunk is, as in Pulsar's message ids: a range has it that has the
last chunk, whoever has the others. A message of which the last chunk never came is none.
"""

from anabranch.client.limits import CHUNKED_BYTES_MAX
from anabranch.errors import AnabranchError, ProtocolError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.telemetry import get_logger
from anabranch.wire import Buffer

_log = get_logger("spark")


class BeginsBefore(AnabranchError):
    """Chunks of a message are not here, and have to be looked for before its last one."""

    def __init__(self, uuid: str, ledger_id: int, entry_id: int) -> None:
        super().__init__(f"{ledger_id}:{entry_id} is the last chunk of {uuid}, which begins before")
        self.uuid = uuid
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class ChunkedMessages:
    """The chunks of messages that are not complete yet."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[int, bytes]] = {}
        self._bytes = 0
        self._looked_for: set[str] = set()
        """Of these nothing more can be found."""

    def copy(self) -> "ChunkedMessages":
        """The same, to go back to."""
        same = ChunkedMessages()
        same._begun = {uuid: dict(parts) for uuid, parts in self._begun.items()}
        same._bytes = self._bytes
        same._looked_for = set(self._looked_for)
        return same

    def add(
        self, metadata: MessageMetadata, payload: Buffer, ledger_id: int, entry_id: int
    ) -> bytes | None:
        """Take a chunk, and return the payload of its message if it was the last.

        Raises:
            BeginsBefore: if it was the last, and others are not here.
            ProtocolError: if the message is larger than any may be.
        """
        uuid, count = metadata.uuid, metadata.num_chunks_from_msg
        if metadata.total_chunk_msg_size > CHUNKED_BYTES_MAX:
            raise ProtocolError(
                f"it is of a message of {metadata.total_chunk_msg_size} bytes in chunks; "
                f"at most {CHUNKED_BYTES_MAX} are put together"
            )
        self._keep(uuid, metadata.chunk_id, payload)
        if metadata.chunk_id + 1 < count:
            self._bound(uuid)
            return None
        parts = self._begun[uuid]
        if len(parts) < count and uuid not in self._looked_for:
            raise BeginsBefore(uuid, ledger_id, entry_id)
        self._drop(uuid)
        self._looked_for.discard(uuid)
        if len(parts) == count:
            return b"".join(parts[number] for number in range(count))
        # Its beginning was deleted, or its producer died and another message took its name.
        _log.warning("message_incomplete", uuid=uuid, chunks=len(parts), of=count)
        return None

    def _keep(self, uuid: str, number: int, payload: Buffer) -> None:
        if number == 0:
            self._drop(uuid)  # a producer that sends a message again begins anew
        parts = self._begun.setdefault(uuid, {})
        if number not in parts:
            parts[number] = bytes(payload)
            self._bytes += len(payload)

    def _drop(self, uuid: str) -> None:
        self._bytes -= sum(map(len, self._begun.pop(uuid, {}).values()))

    def _bound(self, newest: str) -> None:
        """Forget the oldest when there are too many; if they do end, they are looked for."""
        while self._bytes > CHUNKED_BYTES_MAX and len(self._begun) > 1:
            self._drop(next(uuid for uuid in self._begun if uuid != newest))

    def found(self, uuid: str, parts: dict[int, bytes]) -> None:
        """All that there is of a message before its last chunk."""
        self._drop(uuid)
        for number, payload in sorted(parts.items()):
            self._keep(uuid, number, payload)
        self._looked_for.add(uuid)

    def parts(self, uuid: str) -> dict[int, bytes]:
        """What is here of a message."""
        return dict(self._begun.get(uuid, {}))
