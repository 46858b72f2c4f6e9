"""Opens a metadata store by its URL: the one place that names the stores."""

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.oxia import address as oxia_address
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.served.addresses import SCHEME
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.zookeeper import addresses as zookeeper_addresses
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime import Runtime
from anabranch.runtime.channels import Security


async def open_store(
    url: str,
    runtime: Runtime,
    *,
    session_timeout_s: float = limits.METADATA_SESSION_TIMEOUT_S,
    credentials: Credentials = NO_CREDENTIALS,
    may_make: bool = True,
) -> MetadataStore:
    """Open the store that a URL such as `embedded:data/metadata` or `anabranch://host:port` names.

    The timeout is for sessions at a store in another process. Of the credentials, those for the
    kind of store are used. Whoever only looks at a store in ZooKeeper should not make its chroot.

    Raises:
        ConfigError: if there is no such store, the rest of the URL is wrong, or the servers do not
            accept the credentials.
    """
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon:
        if rest:
            raise ConfigError(f"a memory store takes no name: write 'memory:', not {url!r}")
        return MemoryStore(runtime.clock)
    if scheme == "embedded" and colon:
        if not rest:
            raise ConfigError("an embedded store needs a folder: write 'embedded:<folder>'")
        return await EmbeddedStore.open(runtime, rest)
    if scheme == SCHEME and colon:
        return await ServedStore.open(runtime, url, session_timeout_s=session_timeout_s)
    if scheme == zookeeper_addresses.SCHEME and colon:
        return await ZooKeeperStore.open(
            runtime,
            url,
            session_timeout_s=session_timeout_s,
            identities=credentials.identities,
            tls=credentials.zookeeper_tls,
            may_make=may_make,
        )
    if scheme == oxia_address.SCHEME and colon:
        return await OxiaStore.open(
            runtime,
            url,
            session_timeout_s=session_timeout_s,
            security=await _security(runtime, credentials),
        )
    raise ConfigError(
        f"unknown metadata store {url!r}: known are 'memory:', 'embedded:<folder>', "
        f"'{SCHEME}://<host>:<port>', 'zk:<host>:<port>/<chroot>' and "
        "'oxia://<host>:<port>/<namespace>'"
    )


async def _security(runtime: Runtime, credentials: Credentials) -> Security:
    tls = credentials.oxia_tls
    trusted: bytes | None = None
    if tls is not None and tls.ca_file is not None:
        try:
            trusted = await runtime.disk.read(tls.ca_file)
        except OSError as error:
            raise ConfigError(f"cannot read {tls.ca_file}: {error.strerror or error}") from error
    return Security(tls is not None, trusted, credentials.oxia_token)
