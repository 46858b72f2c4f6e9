"""Opens a metadata store by its URL: the one place that names the stores."""

from anabranch import limits
from anabranch.errors import ConfigError
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.addresses import SCHEME
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime


async def open_store(
    url: str,
    runtime: Runtime,
    *,
    session_timeout_s: float = limits.METADATA_SESSION_TIMEOUT_S,
) -> MetadataStore:
    """Open the store that a URL such as `embedded:data/metadata` or `anabranch://host:port` names.

    The timeout is for sessions at a store in another process.

    Raises:
        ConfigError: if there is no such store, or the rest of the URL is wrong.
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
    raise ConfigError(
        f"unknown metadata store {url!r}: known are 'memory:', 'embedded:<folder>' and "
        f"'{SCHEME}://<host>:<port>'"
    )
