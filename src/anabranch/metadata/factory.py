"""Opens a metadata store by its URL: the one place that names the stores."""

from anabranch.errors import ConfigError
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime


async def open_store(url: str, runtime: Runtime) -> MetadataStore:
    """Open the store that a URL such as `memory:` or `embedded:data/metadata` names.

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
    raise ConfigError(
        f"unknown metadata store {url!r}: known are 'memory:' and 'embedded:<folder>'"
    )
