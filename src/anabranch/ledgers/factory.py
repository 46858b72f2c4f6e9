"""Opens a ledger store by its URL: the one place that names the stores."""

from typing import Final

from anabranch.errors import ConfigError
from anabranch.journal import Pressure
from anabranch.ledgers.addresses import EMBEDDED, MEMORY, check_ledgers_url, parse_bookkeeper
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.credentials import NO_LEDGER_CREDENTIALS, LedgerCredentials
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

_DIGESTS: Final = {
    "crc32c": DigestType.CRC32C,
    "crc32": DigestType.CRC32,
    "hmac": DigestType.HMAC,
    "none": DigestType.DUMMY,
}


async def open_ledgers(
    url: str,
    runtime: Runtime,
    *,
    metadata: MetadataStore | None = None,
    credentials: LedgerCredentials = NO_LEDGER_CREDENTIALS,
    pressure: Pressure | None = None,
) -> LedgerStore:
    """Open the store that a URL such as `memory:` or `embedded:data/ledgers` names.

    Bookies and their ledgers are found by `metadata`. Appends count in `pressure`, which several
    stores may share; else in one of the store's own.

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
    if metadata is None:
        raise ConfigError(f"{url!r} needs the metadata store in which the bookies register")
    return await BookKeeperLedgerStore.open_cluster(
        runtime, metadata, bookkeeper_settings(url, credentials), pressure
    )


def bookkeeper_settings(url: str, credentials: LedgerCredentials) -> BookKeeperSettings:
    """How a URL and a file of credentials say that bookies are used.

    Raises:
        ConfigError: if the URL is wrong.
    """
    address = parse_bookkeeper(url)
    return BookKeeperSettings(
        ensemble_size=address.ensemble,
        write_quorum=address.write,
        ack_quorum=address.ack,
        digest=_DIGESTS[address.digest],
        password=credentials.password,
        ledgers_root=address.root,
        frame_bytes_max=address.frame_bytes,
        auth=credentials.auth,
        sasl=credentials.sasl,
        tls=credentials.tls,
    )
