"""Which ledgers anybody needs: those that chains, cursors and schemas name in the metadata."""

from collections.abc import AsyncIterator, Iterator

from anabranch.ledgers.stamps import NO_STAMP, LedgerPlace
from anabranch.managed_ledger.formats import CursorDocument, decode_chain, decode_cursor
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.managed_ledger.schema_formats import decode_locator
from anabranch.managed_ledger.schemas import SCHEMAS
from anabranch.metadata.store import MetadataStore

_COMPACTED = "CompactedTopicLedger"
"""Under which Pulsar's compaction notes the ledger that it wrote."""
_DELAYED = "#pulsar.internal.delayed.bucket"
"""How names begin under which Pulsar notes ledgers with delayed messages."""
_DOMAIN = "persistent"
"""A chain is at TENANT/NAMESPACE/DOMAIN/TOPIC, its cursors one below. Old names, and those by which
Pulsar looks after its own health, have a CLUSTER behind the tenant.
"""


async def references(metadata: MetadataStore) -> AsyncIterator[tuple[LedgerPlace, str]]:
    """Every ledger that something in the metadata refers to, and what that is, in words.

    A ledger that is in none of them is of no use, if nobody is just creating it: its creator
    ended between creating and publishing it.

    Raises:
        FormatError: if a document cannot be read. What it names is not known, so no ledger may
            be taken for unused.
    """
    async for node in metadata.scan(MANAGED_LEDGERS):
        name = node.stat.path.removeprefix(MANAGED_LEDGERS).lstrip("/")
        parts = name.split("/") if name else []
        chain_depth = 5 if parts[2:3] != [_DOMAIN] and parts[3:4] == [_DOMAIN] else 4
        if not node.value and len(parts) < chain_depth:
            continue
        if len(parts) <= chain_depth:
            for span in decode_chain(node.value, name).spans:
                yield span.place, f"managed ledger {name}"
        else:
            for place in _named_by_cursor(decode_cursor(node.value, name)):
                yield place, f"cursor {name}"
    async for node in metadata.scan(SCHEMAS):
        if node.value:
            name = node.stat.path.removeprefix(SCHEMAS).lstrip("/")
            for entry in decode_locator(node.value, f"schema {name}"):
                yield entry.place, f"schema {name}"


def _named_by_cursor(cursor: CursorDocument) -> Iterator[LedgerPlace]:
    """The ledger of its state, and those that Pulsar notes among its properties."""
    if cursor.cursor_ledger_id >= 0:
        yield LedgerPlace(cursor.cursor_ledger_id, cursor.stamp)
    if (compacted := cursor.properties.get(_COMPACTED)) is not None:
        yield LedgerPlace(compacted, NO_STAMP)
    for key, value in cursor.cursor_properties.items():
        if key.startswith(_DELAYED) and value.isascii() and value.isdigit():
            yield LedgerPlace(int(value), NO_STAMP)


async def named_ledgers(metadata: MetadataStore) -> set[int]:
    """The ids of all ledgers that something in the metadata refers to, in whichever cluster.

    Raises:
        FormatError: see `references`.
    """
    return {place.ledger_id async for place, _ in references(metadata)}
