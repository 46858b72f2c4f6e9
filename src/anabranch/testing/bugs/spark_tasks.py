"""Planted bugs of how `pyspark_anabranch` plans tasks and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.testing.planted import original, planted
from anabranch.wire import Buffer
from anabranch.wire.decryption import _OAEP, Decryption, PrivateKeyMissing

if TYPE_CHECKING:
    from pyspark_anabranch.admission import Waiting
    from pyspark_anabranch.encrypted_entries import Payload, Unlocking
    from pyspark_anabranch.entry_rows import StoredEntry
    from pyspark_anabranch.look_back import LookBack
    from pyspark_anabranch.places import Place, Range

_TAG_BYTES: Final = 16


@planted("spark_counts_an_entry_as_a_row", target="pyspark_anabranch.planning:parts_of")
def spark_counts_an_entry_as_a_row(
    waiting: Waiting, end: Place, rows_max: int | None, bytes_max: int | None
) -> Any:
    """A batch of messages is one row when tasks are cut."""
    from dataclasses import replace

    entries = [entry._replace(messages=1) for entry in waiting.entries]
    single = replace(waiting, start=waiting.start._replace(batch_index=0), entries=entries)
    return original("spark_counts_an_entry_as_a_row")(
        single, end._replace(batch_index=0), rows_max, bytes_max
    )


@planted("spark_waits_for_bytes_alone", target="pyspark_anabranch.entry_feed:EntryFeed._is_full")
def spark_waits_for_bytes_alone(self: Any) -> bool:
    """That as many messages are here as may be sent ahead is no reason to go on with them."""
    return False


@planted("spark_lists_no_losses", target="pyspark_anabranch.planning:note_lost")
def spark_lists_no_losses(folder: str, lost: Sequence[Range]) -> None:
    """Only the last of the lost ranges is listed."""
    original("spark_lists_no_losses")(folder, lost[-1:])


@planted("spark_takes_filters_that_leak", target="pyspark_anabranch.source:keeps_plans_apart")
def spark_takes_filters_that_leak() -> bool:
    """Filters are taken, though Spark uses what was planned with them for other queries."""
    return True


@planted("spark_takes_greater_for_less", target="pyspark_anabranch.row_filters:_Condition.can_be")
def spark_takes_greater_for_less(self: Any, low: Any, high: Any) -> bool:
    """Ledgers behind the place that a filter names are passed over."""
    found: bool = original("spark_takes_greater_for_less")(self, low, high)
    return found and all(low <= value for value in self.values)


@planted("spark_reads_every_ledger", target="pyspark_anabranch.row_filters:RowFilters._can_be")
def spark_reads_every_ledger(self: Any, path: tuple[str, ...], low: Any, high: Any) -> bool:
    """Filters leave out rows, but nothing of what is read."""
    return True


@planted("spark_overrides_push_filters", target="pyspark_anabranch.source:BatchReader.pushFilters")
def spark_overrides_push_filters(self: Any, filters: list[Any]) -> Any:
    """The reader is one that wants filters, though nobody may hand any down."""
    return filters


@planted("spark_forgets_the_first_chunk", target="pyspark_anabranch.look_back:LookBack.complete")
def spark_forgets_the_first_chunk(self: Any, chunks: Any, missing: Any) -> None:
    """A message that begins before the range of a task is left out."""
    chunks.found(missing.uuid, {})


@planted(
    "spark_leaves_single_messages_encrypted",
    target="pyspark_anabranch.encrypted_entries:Unlocking.payload",
)
def spark_leaves_single_messages_encrypted(
    self: Unlocking, metadata: MessageMetadata, stored: Buffer, *place: int
) -> Payload | None:
    """A message with an entry of its own is taken for what it is not: readable."""
    from pyspark_anabranch.encrypted_entries import Payload

    found: Payload | None = original("spark_leaves_single_messages_encrypted")(
        self, metadata, stored, *place
    )
    if found is None or metadata.HasField("num_messages_in_batch") or metadata.compression:
        return found
    return Payload(stored, found.is_clear)


@planted("spark_joins_encrypted_chunks", target="pyspark_anabranch.look_back:LookBack._readable")
def spark_joins_encrypted_chunks(
    self: LookBack, metadata: MessageMetadata, payload: Buffer, entry: StoredEntry
) -> Buffer | None:
    """Chunks that lie before a range are put in front of the others as they are stored."""
    return payload


@planted(
    "spark_leaves_out_what_has_no_key",
    target="pyspark_anabranch.encrypted_entries:Unlocking.payload",
)
def spark_leaves_out_what_has_no_key(
    self: Unlocking, metadata: MessageMetadata, stored: Buffer, *place: int
) -> Payload | None:
    """Entries for which there is no key are not there, and nobody is told."""
    try:
        found: Payload | None = original("spark_leaves_out_what_has_no_key")(
            self, metadata, stored, *place
        )
    except PrivateKeyMissing:
        return None
    return found


@planted("decryption_skips_the_tag", target="anabranch.wire.decryption:Decryption.decrypted")
def decryption_skips_the_tag(self: Decryption, metadata: MessageMetadata, payload: Buffer) -> bytes:
    """What was changed after it was encrypted is decrypted all the same."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = metadata.encryption_keys[0]
    secret = self._keys[key.key].decrypt(key.value, _OAEP)
    nonce, text = metadata.encryption_param, bytes(payload)[:-_TAG_BYTES]
    decryptor = Cipher(algorithms.AES(secret), modes.GCM(nonce)).decryptor()
    return decryptor.update(text)
