"""Planted bugs of `pyspark_anabranch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import TopicName
from anabranch.testing.planted import original, planted
from anabranch.wire import Buffer, Message

if TYPE_CHECKING:
    from pyspark_anabranch.admin_view import AdminView
    from pyspark_anabranch.arrays import Octets
    from pyspark_anabranch.direct.sealed_entries import SealedEntries
    from pyspark_anabranch.entry_feed import EntryFeed
    from pyspark_anabranch.options import Options
    from pyspark_anabranch.places import Place, Range, Span
    from pyspark_anabranch.planning import Task
    from pyspark_anabranch.topic_map import TopicMap


@planted("spark_forgets_a_partition", target="pyspark_anabranch.admin_view:AdminView.partitions")
def spark_forgets_a_partition(self: AdminView, topic: TopicName) -> list[TopicName]:
    """The last partition of a topic is not read."""
    found: list[TopicName] = original("spark_forgets_a_partition")(self, topic)
    return found[:-1] if len(found) > 1 else found


@planted("spark_takes_the_first_way", target="pyspark_anabranch.options:Options.check_topics")
def spark_takes_the_first_way(self: Options) -> None:
    """Two ways to name topics are both taken."""


@planted("spark_hashes_without_the_last_word", target="pyspark_anabranch.key_hashes:_murmur3")
def spark_hashes_without_the_last_word(keys: Octets, size: int) -> Any:
    """Bytes behind the last whole word of a key do not count."""
    whole = size & ~3
    return original("spark_hashes_without_the_last_word")(keys[:, :whole], whole)


@planted("spark_reads_packed_as_it_is", target="pyspark_anabranch.entry_rows:_unpacked")
def spark_reads_packed_as_it_is(metadata: MessageMetadata, payload: Buffer) -> Buffer:
    """A compressed message that came alone is not unpacked."""
    if not metadata.HasField("num_messages_in_batch"):
        return payload
    unpacked: Buffer = original("spark_reads_packed_as_it_is")(metadata, payload)
    return unpacked


@planted("spark_splits_with_a_gap", target="pyspark_anabranch.topic_map:split")
def spark_splits_with_a_gap(spans: Sequence[Span], entries_max: int) -> list[list[Span]]:
    """The first entry of every task but the first is nobody's."""
    parts: list[list[Span]] = original("spark_splits_with_a_gap")(spans, entries_max)
    return [parts[0], *([part[0]._replace(first=part[0].first + 1)] for part in parts[1:])]


@planted(
    "spark_ignores_the_choice_of_columns", target="pyspark_anabranch.options:Options.__getitem__"
)
def spark_ignores_the_choice_of_columns(self: Options, name: str) -> Any:
    """All columns come whatever was asked for."""
    if name == "columns":
        from pyspark_anabranch.row_columns import COLUMNS

        return COLUMNS
    return original("spark_ignores_the_choice_of_columns")(self, name)


@planted("spark_skips_the_checksum", target="pyspark_anabranch.entry_rows:verify_checksum")
def spark_skips_the_checksum(entry: Buffer) -> bool:
    """Entries are not compared with their checksums."""
    return True


@planted(
    "spark_overlooks_a_missing_entry", target="pyspark_anabranch.entry_feed:EntryFeed.on_message"
)
def spark_overlooks_a_missing_entry(self: EntryFeed, message: Message) -> None:
    """Whatever entry comes next is taken for the one that had to come."""
    if self._spans and message.ledger_id == self._spans[0].ledger_id:
        missing = message.entry_id - self._next
        if 0 < missing < self._left:
            self._left -= missing
            self._next += missing
    original("spark_overlooks_a_missing_entry")(self, message)


@planted("spark_reads_on_after_a_loss", target="pyspark_anabranch.topic_map:TopicMap.lost")
def spark_reads_on_after_a_loss(self: TopicMap, start: Place, end: Place) -> Range | None:
    """What was deleted is passed over in silence."""
    return None


@planted("spark_ends_behind_the_entry", target="pyspark_anabranch.planning:Task.part_of")
def spark_ends_behind_the_entry(self: Task, entry: Any) -> Any:
    """A range that ends within an entry goes to the end of it."""
    return original("spark_ends_behind_the_entry")(self, entry)._replace(until=None)


@planted("spark_trusts_even_sizes", target="pyspark_anabranch.entry_rows:_Chunk._disagreeing")
def spark_trusts_even_sizes(
    self: Any, heads: Sequence[Any], bodies: Sequence[Any], fields: Any
) -> list[int]:
    """Messages that seem to have one size are taken to have it."""
    return []


@planted("spark_readers_are_remembered", target="anabranch.wire.requests:subscribe")
def spark_readers_are_remembered(*arguments: Any, **named: Any) -> Any:
    """A reader is a durable subscription, which outlives whoever reads."""
    named["durable"] = True
    return original("spark_readers_are_remembered")(*arguments, **named)


@planted("spark_reads_sealed_twice", target="pyspark_anabranch.planning:Task.parts")
def spark_reads_sealed_twice(self: Task) -> Any:
    """What is read where it is stored is asked of the broker as well."""
    for is_sealed, part in original("spark_reads_sealed_twice")(self):
        yield is_sealed, part
        if is_sealed:
            yield False, part


@planted(
    "spark_overlooks_a_gap_in_a_ledger",
    target="pyspark_anabranch.direct.sealed_entries:SealedEntries._expect",
)
def spark_overlooks_a_gap_in_a_ledger(
    self: SealedEntries, entry: Any, ledger_id: int, due: int
) -> None:
    """Any entry may follow any other."""


@planted(
    "spark_overlooks_the_end_of_a_ledger",
    target="pyspark_anabranch.direct.sealed_entries:SealedEntries._check_end",
)
def spark_overlooks_the_end_of_a_ledger(self: SealedEntries, span: Span, due: int) -> None:
    """A ledger that ends too early ends the range."""


@planted(
    "spark_believes_any_ledger",
    target="pyspark_anabranch.direct.sealed_entries:SealedEntries._check",
)
async def spark_believes_any_ledger(self: SealedEntries, view: Any, span: Span) -> None:
    """Whatever has the number of a ledger is taken for it."""


@planted("spark_index_skips_checksums", target="pyspark_anabranch.direct.column_index:checksum")
def spark_index_skips_checksums(content: Any) -> int:
    """Every file of an index has the same checksum."""
    return 0


@planted(
    "spark_index_is_taken_whole",
    target="pyspark_anabranch.direct.column_index:IndexedLedger.has_all",
)
def spark_index_is_taken_whole(self: Any, span: Span, start: Place, end: Place) -> bool:
    """A range within a ledger is the whole ledger."""
    return True


@planted(
    "spark_keeps_no_index", target="pyspark_anabranch.direct.column_index:IndexedLedger._streams"
)
def spark_keeps_no_index(self: Any, columns: Sequence[Any]) -> None:
    """What was kept of a ledger is never found, and the ledger is read again."""
    return
