"""A metadata node with one owner: every write requires the version its own last write left."""

import asyncio

from anabranch.errors import BadVersion, CatalogChanged, Fenced
from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.metadata.store import Expected, Guard, MetadataStore

MANAGED_LEDGERS = "/managed-ledgers"


class OwnedNode:
    """Writes one node as long as nobody else does."""

    __slots__ = ("_compression", "_expected", "_metadata", "_turn", "path")

    def __init__(
        self,
        metadata: MetadataStore,
        path: str,
        expected: Expected,
        compression: DocumentCompression,
    ) -> None:
        self._metadata = metadata
        self.path = path
        self._expected = expected
        self._compression = compression
        self._turn = asyncio.Lock()

    async def write(self, value: bytes, guard: Guard | None = None) -> None:
        """Replace the value, which is compressed first if it is to be.

        `guard` is that of a ledger just created.

        Raises:
            Fenced: if somebody else wrote: they own it now.
            CatalogChanged: if the guard does not hold any more; nothing was written.
        """
        packed = self._compression.pack(value)
        async with self._turn:
            try:
                await self._put(packed, guard)
            except Fenced as error:
                if guard is None:
                    raise
                raise CatalogChanged(f"{self.path} was not written: {error}") from error
            except BadVersion as error:
                raise Fenced(f"{self.path} was written by another owner: {error}") from error

    async def _put(self, packed: bytes, guard: Guard | None = None) -> None:
        stat = await self._metadata.put(self.path, packed, self._expected, guard=guard)
        self._expected = stat.version

    async def delete(self) -> None:
        """Remove the node.

        Raises:
            Fenced: if somebody else wrote to it.
            NotFound: if it is gone.
        """
        try:
            await self._metadata.delete(self.path, self._expected)
        except BadVersion as error:
            raise Fenced(f"{self.path} was written by another owner: {error}") from error

    async def check(self) -> None:
        """Make sure that nobody else has written.

        Raises:
            Fenced: if somebody has.
        """
        if await self._is_as_written():
            return
        async with self._turn:  # of a write under way the version is not known yet
            node = await self._metadata.get(self.path)
            if node is None:
                raise Fenced(f"{self.path} was deleted by another owner")
            if node.stat.version == self._expected:
                return
            # A store that has replaced another calls the same state by another version; whether
            # it is the same, only a write can ask.
            try:
                await self._put(node.value)
            except BadVersion as error:
                raise Fenced(f"{self.path} was written by another owner: {error}") from error

    async def _is_as_written(self) -> bool:
        node = await self._metadata.get(self.path)
        return node is not None and node.stat.version == self._expected
