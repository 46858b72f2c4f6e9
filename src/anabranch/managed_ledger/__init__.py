"""Ledger chains, cursors, retention, entry cache, ledger ids, schema storage."""

from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.managed_ledger.cursor import Cursor
from anabranch.managed_ledger.entry_search import newest_matching
from anabranch.managed_ledger.environment import ManagedLedgerConfig
from anabranch.managed_ledger.factory import ManagedLedgers
from anabranch.managed_ledger.ledger import ManagedLedger
from anabranch.managed_ledger.retention import Retention
from anabranch.managed_ledger.schema_formats import SchemaInfo
from anabranch.managed_ledger.schemas import SchemaStorage, StoredSchema

__all__ = [
    "Cursor",
    "DocumentCompression",
    "ManagedLedger",
    "ManagedLedgerConfig",
    "ManagedLedgers",
    "Retention",
    "SchemaInfo",
    "SchemaStorage",
    "StoredSchema",
    "newest_matching",
]
