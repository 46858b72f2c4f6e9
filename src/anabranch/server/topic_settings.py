"""What of a server's settings is about how topics are kept."""

from typing import cast

from anabranch.managed_ledger import DocumentCompression, ManagedLedgerConfig
from anabranch.server.settings import Settings
from anabranch.wire.compression import Compression


def managed_ledger_config(settings: Settings) -> ManagedLedgerConfig:
    """The settings of all managed ledgers.

    Raises:
        ConfigError: if a compression takes a library that is missing.
    """
    return ManagedLedgerConfig(
        chain_compression=DocumentCompression(cast("Compression", settings.chain_compression)),
        cursor_compression=DocumentCompression(cast("Compression", settings.cursor_compression)),
    )
