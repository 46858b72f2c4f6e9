"""Which ledgers anybody needs: those that chains, cursors and schemas name in the metadata."""

from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from anabranch.ledgers.stamps import NO_STAMP, LedgerPlace
from anabranch.managed_ledger.formats import (
    CursorDocument,
    decode_chain,
    decode_cursor,
    is_offloaded,
)
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.managed_ledger.schema_formats import decode_locator
from anabranch.managed_ledger.schemas import SCHEMAS
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import MetadataStore

_COMPACTED = "CompactedTopicLedger"
"""Under which Pulsar's compaction notes the ledger that it wrote."""
_DELAYED = "#pulsar.internal.delayed.bucket"
"""How names begin under which Pulsar notes ledgers with delayed messages."""
MANAGED_LEDGER_KEY: Final = "pulsar/managed-ledger"
"""Under which the maker of a ledger notes, with the ledger, for which chain it is."""
SCHEMA_KEY: Final = "pulsar/schemaId"
"""The same for a schema."""
NAMING_ROOTS: Final = (MANAGED_LEDGERS, SCHEMAS)
"""Below which the metadata name ledgers."""
KNOWN_MAKERS: Final = (
    b"managed-ledger",
    b"schema",
    b"compacted-topic",
    b"delayed-index-bucket",
)
"""Makers of ledgers whose documents are known here, as they note themselves with a ledger."""
_DOMAIN = "persistent"
"""A chain is at TENANT/NAMESPACE/DOMAIN/TOPIC, its cursors one below. Old names, and those by which
Pulsar looks after its own health, have a CLUSTER behind the tenant.
"""


class Reference(NamedTuple):
    """A ledger that something in the metadata refers to."""

    place: LedgerPlace
    user: str
    """What refers to it, in words."""
    key: str
    """Under which the maker of a ledger notes, with the ledger, for what it is."""
    name: str
    """What is noted there, if the ledger was made for this user."""
    is_elsewhere: bool = False
    """Whether it was moved to slower storage, and is no longer in the ledger store."""


async def references(metadata: MetadataStore) -> AsyncIterator[tuple[LedgerPlace, str]]:
    """Every ledger that something in the metadata refers to, and what that is, in words.

    Raises:
        FormatError: see `all_references`.
    """
    async for found in all_references(metadata):
        yield found.place, found.user


async def all_references(metadata: MetadataStore) -> AsyncIterator[Reference]:
    """Every ledger that something in the metadata refers to.

    A ledger that is in none of them is of no use, if nobody is just creating it: its creator
    ended between creating and publishing it.

    Raises:
        FormatError: if a document cannot be read. What it names is not known, so no ledger may
            be taken for unused.
    """
    for root in NAMING_ROOTS:
        async for node in metadata.scan(root):
            for found in references_in(node.stat.path, node.value):
                yield found


def references_in(path: str, value: bytes) -> Iterator[Reference]:
    """The ledgers that one node below `NAMING_ROOTS` refers to.

    Raises:
        FormatError: if it cannot be read.
    """
    if is_within(MANAGED_LEDGERS, path):
        yield from _named_by_managed_ledger(path.removeprefix(MANAGED_LEDGERS).lstrip("/"), value)
    elif value:
        name = path.removeprefix(SCHEMAS).lstrip("/")
        for entry in decode_locator(value, f"schema {name}"):
            yield Reference(entry.place, f"schema {name}", SCHEMA_KEY, name)


def _named_by_managed_ledger(name: str, value: bytes) -> Iterator[Reference]:
    parts = name.split("/") if name else []
    chain_depth = 5 if parts[2:3] != [_DOMAIN] and parts[3:4] == [_DOMAIN] else 4
    if not value and len(parts) < chain_depth:
        return
    if len(parts) <= chain_depth:
        for span in decode_chain(value, name).spans:
            yield Reference(
                span.place, f"managed ledger {name}", MANAGED_LEDGER_KEY, name, is_offloaded(span)
            )
    else:
        chain = "/".join(parts[:chain_depth])
        for place in _named_by_cursor(decode_cursor(value, name)):
            yield Reference(place, f"cursor {name}", MANAGED_LEDGER_KEY, chain)


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
        FormatError: see `all_references`.
    """
    return {place.ledger_id async for place, _ in references(metadata)}
