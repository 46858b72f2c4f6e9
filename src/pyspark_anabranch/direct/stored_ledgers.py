"""Where a task finds the ledgers of a topic: a folder that it sees, or bookies."""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import ConfigError
from anabranch.ledgers.addresses import EMBEDDED, MEMORY, check_ledgers_url, parse_bookkeeper
from anabranch.ledgers.bookkeeper.inspection import LedgersOnBookies
from anabranch.ledgers.credentials import NO_LEDGER_CREDENTIALS, parse_ledger_credentials
from anabranch.ledgers.factory import bookkeeper_settings
from anabranch.ledgers.sealed_ledgers import SealedLedgers
from anabranch.managed_ledger.inspection import BookiesView, LedgerView
from anabranch.metadata.credentials import NO_CREDENTIALS, parse_credentials
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime


@dataclass(frozen=True, slots=True)
class StoredLedgers:
    """A ledger store, by its URL; files with credentials are read where a task runs."""

    url: str
    credentials: str = ""
    metadata_credentials: str = ""

    def check(self) -> None:
        """Refuse what no task can read.

        Raises:
            ConfigError: naming what is wrong.
        """
        check_ledgers_url(self.url)
        if self.url == MEMORY:
            raise ConfigError(f"ledgers at {MEMORY!r} are within the server: nobody else sees them")
        if self.url == EMBEDDED:
            raise ConfigError("name the folder of the server's data: write 'embedded:<folder>'")
        if not self.url.startswith(EMBEDDED) and not parse_bookkeeper(self.url).metadata_url:
            raise ConfigError(
                f"{self.url!r} does not say in which metadata store the bookies register: write "
                "bookkeeper:zk:HOST:PORT/CHROOT"
            )

    @asynccontextmanager
    async def opened(self, wanted: Collection[int]) -> AsyncIterator[LedgerView]:
        """A view of some ledgers; nobody is fenced, nothing is written.

        Raises:
            AnabranchError: if they cannot be reached, or are not there.
        """
        runtime = real_runtime()
        if self.url.startswith(EMBEDDED):
            sealed = await SealedLedgers.find(runtime.disk, self._folder(), wanted)
            try:
                yield sealed
            finally:
                await sealed.close()
            return
        secrets = NO_CREDENTIALS
        if self.metadata_credentials:
            secrets = parse_credentials(*_read(self.metadata_credentials))
        ledger_secrets = NO_LEDGER_CREDENTIALS
        if self.credentials:
            ledger_secrets = parse_ledger_credentials(*_read(self.credentials))
        settings = bookkeeper_settings(self.url, ledger_secrets)
        registry = parse_bookkeeper(self.url).metadata_url
        async with AsyncExitStack() as held:
            metadata = await open_store(registry, runtime, credentials=secrets, may_make=False)
            held.push_async_callback(metadata.close)
            ledgers = await LedgersOnBookies.open(runtime, metadata, settings)
            held.push_async_callback(ledgers.close)
            yield BookiesView(ledgers)

    def _folder(self) -> str:
        """Of the ledgers, in the folder of a server's data or that folder itself."""
        given = Path(self.url.removeprefix(EMBEDDED))
        within = given / "ledgers"
        return str(within if (within / "journal").is_dir() else given)


def _read(path: str) -> tuple[str, bytes]:
    try:
        return path, Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"credentials file {path} cannot be read where a task runs: {error.strerror or error}"
        ) from error
