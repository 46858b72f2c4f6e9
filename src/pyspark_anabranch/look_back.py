"""The chunks of a message that lie before the range of a task, read through the broker."""

from collections.abc import Sequence

from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import TopicName
from anabranch.wire import Buffer, parse_entry
from pyspark_anabranch.broker_calls import run
from pyspark_anabranch.broker_reading import BrokerEntries
from pyspark_anabranch.chunked_messages import BeginsBefore, ChunkedMessages
from pyspark_anabranch.encrypted_entries import Unlocking
from pyspark_anabranch.entry_rows import StoredEntry
from pyspark_anabranch.limits import CHUNK_BYTES, LOOK_BACK_ENTRIES, LOOK_BACK_FACTOR
from pyspark_anabranch.options import Options
from pyspark_anabranch.places import Place, Span
from pyspark_anabranch.planning import Task


class LookBack:
    """Finds what a task has not read of a message that ends in it."""

    def __init__(self, options: Options, topic: str, unlocking: Unlocking) -> None:
        self._options = options
        self._topic = topic
        self._unlocking = unlocking

    def complete(self, chunks: ChunkedMessages, missing: BeginsBefore) -> None:
        """Tell `chunks` everything there is of a message, farther and farther back."""
        end = Place(missing.ledger_id, missing.entry_id)
        known = self._options.access.view().map_of(TopicName.parse(self._topic))
        spans = known.spans(known.start, end)
        size, whole = LOOK_BACK_ENTRIES, sum(span.entries for span in spans)
        while True:
            parts = run(self._parts(last_entries(spans, size), end, missing.uuid))
            if 0 in parts or size >= whole:
                chunks.found(missing.uuid, parts)
                return
            size *= LOOK_BACK_FACTOR

    async def _parts(self, spans: Sequence[Span], end: Place, uuid: str) -> dict[int, bytes]:
        found = ChunkedMessages()
        if not spans:
            return {}
        task = Task.of(self._topic, spans, Place(spans[0].ledger_id, spans[0].first), end)
        source = BrokerEntries(self._options.access, task, self._options["readTimeout"])
        try:
            await source.open()
            while entries := await source.entries(CHUNK_BYTES):
                for entry in entries:
                    metadata, payload = parse_entry(entry.content)
                    is_part = metadata.num_chunks_from_msg > 1 and metadata.uuid == uuid
                    if is_part and metadata.chunk_id + 1 < metadata.num_chunks_from_msg:
                        readable = self._readable(metadata, payload, entry)
                        if readable is not None:
                            found.add(metadata, readable, entry.ledger_id, entry.entry_id)
        finally:
            await source.close()
        return found.parts(uuid)

    def _readable(
        self, metadata: MessageMetadata, payload: Buffer, entry: StoredEntry
    ) -> Buffer | None:
        if not metadata.encryption_keys:
            return payload
        found = self._unlocking.payload(metadata, payload, entry.ledger_id, entry.entry_id)
        # A chunk that is handed over as it is is a row where it lies, and no part of another.
        return found.content if found is not None and found.is_clear else None


def last_entries(spans: Sequence[Span], count: int) -> list[Span]:
    """The last so many entries of some spans."""
    found: list[Span] = []
    for span in reversed(spans):
        if count <= 0:
            break
        found.insert(0, span._replace(first=max(span.first, span.until - count)))
        count -= span.entries
    return found
