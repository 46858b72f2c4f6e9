"""Ledgers read where they are stored give the rows of their entries, whatever a server does."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from test_spark_rows_against_the_sdk import ORIGIN, entries, packed

from anabranch.ids import TopicName
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.ledgers import append
from pyspark_anabranch.batches import batches_of
from pyspark_anabranch.chunked_messages import BeginsBefore, ChunkedMessages
from pyspark_anabranch.direct.sealed_entries import SealedEntries
from pyspark_anabranch.direct.stored_ledgers import StoredLedgers
from pyspark_anabranch.entry_rows import StoredEntry, rows_of
from pyspark_anabranch.look_back import LookBack
from pyspark_anabranch.places import Place
from pyspark_anabranch.planning import Task
from pyspark_anabranch.row_columns import COLUMNS, record_batch
from pyspark_anabranch.topic_map import LedgerSize, TopicMap, split

TOPIC = TopicName.parse(ORIGIN.topic)
SEGMENT_BYTES = 2000
NOISE = 500
"""Another ledger, between whose entries all others are."""


class NothingBefore(LookBack):
    """Of messages that are whole nothing is looked for."""

    def __init__(self) -> None:
        """With no broker to ask."""

    def complete(self, chunks: ChunkedMessages, missing: BeginsBefore) -> None:
        raise AssertionError(f"{missing} is in chunks")


ledgers = st.lists(st.lists(entries, min_size=1, max_size=5), min_size=1, max_size=3)


async def store(folder, contents, is_tidied):
    """Write ledgers 1, 2, ... one after the other, and perhaps have the segments written anew."""
    kept = await EmbeddedLedgerStore.open_folder(
        real_runtime().disk, folder, segment_bytes=SEGMENT_BYTES
    )
    noise = await kept.create(NOISE)
    made_for = {"pulsar/managed-ledger": TOPIC.managed_ledger_name.encode()}
    for ledger_id, stored in contents.items():
        writer = await kept.create(ledger_id, custom_metadata=made_for)
        for entry in stored:
            await append(noise, bytes(2 * len(entry)))
            await append(writer, entry)
        await writer.close()
    if is_tidied:
        await kept.delete(NOISE)
        await kept.tidied()
    await kept.close()


@given(ledgers, st.booleans(), st.data())
@settings(max_examples=20, deadline=None)
def test_rows_are_those_of_the_entries_in_every_range(drawn, is_tidied, data):
    contents = {
        number: [packed(*each) for each in ledger] for number, ledger in enumerate(drawn, 1)
    }
    sizes = {ledger_id: len(stored) for ledger_id, stored in contents.items()}
    known = TopicMap(ORIGIN.topic, tuple(LedgerSize(n, size, 1) for n, size in sizes.items()))
    places = [Place(n, entry, 0) for n, size in sizes.items() for entry in range(size)]
    start, end = sorted(
        (data.draw(st.sampled_from(places)), data.draw(st.sampled_from([*places, known.end])))
    )
    end = data.draw(st.sampled_from([end, end._replace(batch_index=1)]))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(store(folder, contents, is_tidied))
        stored = StoredLedgers(f"embedded:{Path(folder)}")
        for spans in split(known.spans(start, end), data.draw(st.integers(1, 4))):
            task = Task.of(ORIGIN.topic, spans, start, end, sizes)
            source = SealedEntries(stored, TOPIC, task.spans, task.sealed)
            batches = batches_of(source, task, COLUMNS, NothingBefore())
            read = [row for batch in batches for row in batch.to_pylist()]
            wanted = [
                task.part_of(StoredEntry(n, each, contents[n][each]))
                for n, first, until in task.spans
                for each in range(first, until)
            ]
            assert read == record_batch(rows_of(wanted), COLUMNS, ORIGIN).to_pylist()
