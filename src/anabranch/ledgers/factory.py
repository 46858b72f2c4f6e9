"""Opens a ledger store by its URL: the one place that names the stores."""

from anabranch.errors import ConfigError
from anabranch.journal import Pressure
from anabranch.ledgers.addresses import EMBEDDED, MEMORY, check_ledgers_url
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.runtime import Runtime


async def open_ledgers(
    url: str, runtime: Runtime, *, pressure: Pressure | None = None
) -> LedgerStore:
    """Open the store that a URL such as `memory:` or `embedded:data/ledgers` names.

    Appends count in `pressure`, which several stores may share; else in one of the store's own.

    Raises:
        ConfigError: if there is no such store, or the rest of the URL is wrong.
    """
    check_ledgers_url(url)
    if url == MEMORY:
        return MemoryLedgerStore(pressure)
    if url == EMBEDDED:
        raise ConfigError("an embedded store needs a folder: write 'embedded:<folder>'")
    if url.startswith(EMBEDDED):
        folder = url.removeprefix(EMBEDDED)
        return await EmbeddedLedgerStore.open_folder(runtime.disk, folder, pressure=pressure)
    raise ConfigError(f"{url!r} cannot be opened by this build")
