"""Planted bugs of what is kept so that Pulsar can take over a topic, and give one away."""

from collections.abc import Mapping
from copy import copy

from anabranch.broker.generated_names import COUNTER
from anabranch.generated.ml_data_formats_pb2 import ManagedCursorInfo
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.metadata.counters import Numbering, SequentialCounter
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


@planted(
    "batch_acks_stay_in_the_node", target="anabranch.managed_ledger.stored_cursor:encode_cursor"
)
def batch_acks_stay_in_the_node(
    state: Acknowledged,
    properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
    extra: bytes = b"",
) -> bytes | None:
    """What is acknowledged of a batch is stored where Pulsar writes it and never looks."""
    whole = copy(state)
    whole._batches = {}
    value = original("batch_acks_stay_in_the_node")(whole, properties, cursor_properties, extra)
    if value is None:
        return None
    info = ManagedCursorInfo.FromString(value)
    for position, words in state.batches():
        batch = info.batchedEntryDeletionIndexInfo.add(deleteSet=words)
        batch.position.ledgerId, batch.position.entryId = position
    return info.SerializeToString()


@planted("broker_metadata_reaches_clients", target="anabranch.broker.consumer:_as_sent")
def broker_metadata_reaches_clients(stored: Buffer) -> Buffer:
    """Consumers get what a broker of Pulsar put in front of an entry."""
    return stored


@planted("names_are_counted_beside_pulsar", target="anabranch.broker.generated_names:next_instance")
async def names_are_counted_beside_pulsar(
    store: MetadataStore, numbering: Numbering = Numbering.BY_CHILDREN
) -> int:
    """The number of a broker is kept where Pulsar's brokers do not look."""
    if numbering is Numbering.BY_CHANGES:
        return await SequentialCounter(store, COUNTER).next()
    node = await store.get(COUNTER)
    taken = int(node.value or b"0") if node is not None else 0
    await store.put(COUNTER, b"%d" % (taken + 1))
    return taken


@planted(
    "counting_erases_what_earlier_builds_gave",
    target="anabranch.broker.generated_names:next_instance",
)
async def counting_erases_what_earlier_builds_gave(
    store: MetadataStore, numbering: Numbering = Numbering.BY_CHILDREN
) -> int:
    """Who counts by changes forgets at the first one what earlier builds have given."""
    node = await store.get(COUNTER)
    if numbering is Numbering.BY_CHANGES and node is not None:
        await store.put(COUNTER, b"")
        while (number := (await store.put(COUNTER, b"")).version.native) < int(node.value or b"0"):
            pass
        return number
    return int(await original("counting_erases_what_earlier_builds_gave")(store, numbering))
