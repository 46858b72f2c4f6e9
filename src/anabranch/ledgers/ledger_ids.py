"""The one authority for ledger ids: every ledger ever created gets an id above all before it.

Pulsar takes its ids from a generator of the metadata store in use, so that changing the store
could hand out an id twice. Here the counter is a plain document that moves with all the others.
"""

from anabranch import limits
from anabranch.metadata.counters import BlockCounter
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

PATH = "/anabranch/ledger-ids"


class LedgerIds(BlockCounter):
    """Hands out ledger ids; any number of processes may share the counter."""

    def __init__(self, metadata: MetadataStore, runtime: Runtime) -> None:
        super().__init__(
            metadata,
            runtime,
            PATH,
            document_format="anabranch.ledger-ids",
            block=limits.LEDGER_IDS_RESERVED,
            first=1,
        )
