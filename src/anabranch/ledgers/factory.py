"""Opens a ledger store by its URL: the one place that names the stores."""

from anabranch.errors import ConfigError
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.runtime import Runtime


async def open_ledgers(url: str, runtime: Runtime) -> LedgerStore:
    """Open the store that a URL such as `memory:` or `embedded:data/ledgers` names.

    Raises:
        ConfigError: if there is no such store, or the rest of the URL is wrong.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon:
        if rest:
            raise ConfigError(f"a memory store takes no name: write 'memory:', not {url!r}")
        return MemoryLedgerStore()
    if scheme == "embedded" and colon:
        if not rest:
            raise ConfigError("an embedded store needs a folder: write 'embedded:<folder>'")
        return await EmbeddedLedgerStore.open_folder(runtime.disk, rest)
    raise ConfigError(f"unknown ledger store {url!r}: known are 'memory:' and 'embedded:<folder>'")
