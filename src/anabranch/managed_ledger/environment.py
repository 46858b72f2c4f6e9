"""What managed ledgers are built from: settings, and the things they share in one process."""

from dataclasses import dataclass, field

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.ledgers.clusters import StorageClusters
from anabranch.managed_ledger.cache import EntryCache
from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ManagedLedgerConfig:
    """Settings of all managed ledgers of a process."""

    ledger_entries_max: int = limits.LEDGER_ENTRIES_MAX
    ledger_bytes_max: int = limits.LEDGER_BYTES_MAX
    ledger_age_s_max: float = limits.LEDGER_AGE_S_MAX
    """A ledger gets no more entries once it has one of these."""
    retention: Retention = field(default_factory=Retention)
    entry_cache_bytes_max: int = limits.ENTRY_CACHE_BYTES_MAX
    chain_compression: DocumentCompression = field(default_factory=DocumentCompression)
    cursor_compression: DocumentCompression = field(default_factory=DocumentCompression)
    """How the nodes of chains and of cursors are written; all forms are read."""

    def __post_init__(self) -> None:
        for name, value in (
            ("ledger_entries_max", self.ledger_entries_max),
            ("ledger_bytes_max", self.ledger_bytes_max),
            ("ledger_age_s_max", self.ledger_age_s_max),
        ):
            if value <= 0:
                raise ConfigError(f"{name} is {value}; it must be above 0")
        if self.entry_cache_bytes_max < 0:
            raise ConfigError(
                f"entry_cache_bytes_max is {self.entry_cache_bytes_max}; 0 turns the cache off"
            )


@dataclass(frozen=True, slots=True)
class Environment:
    """What the managed ledgers of one process share."""

    metadata: MetadataStore
    ledgers: StorageClusters
    runtime: Runtime
    config: ManagedLedgerConfig
    cache: EntryCache
