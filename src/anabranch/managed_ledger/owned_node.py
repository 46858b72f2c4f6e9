"""A metadata node with one owner: every write requires the version its own last write left."""

from anabranch.errors import BadVersion, CatalogChanged, Fenced
from anabranch.managed_ledger.compressed_documents import DocumentCompression
from anabranch.metadata.store import Expected, Guard, MetadataStore

MANAGED_LEDGERS = "/managed-ledgers"


class OwnedNode:
    """Writes one node as long as nobody else does."""

    __slots__ = ("_compression", "_expected", "_metadata", "path")

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

    async def write(self, value: bytes, guard: Guard | None = None) -> None:
        """Replace the value, which is compressed first if it is to be. One write at a time.

        `guard` is that of a ledger just created.

        Raises:
            Fenced: if somebody else wrote: they own it now.
            CatalogChanged: if the guard does not hold any more; nothing was written.
        """
        try:
            packed = self._compression.pack(value)
            stat = await self._metadata.put(self.path, packed, self._expected, guard=guard)
        except Fenced as error:
            if guard is None:
                raise
            raise CatalogChanged(f"{self.path} was not written: {error}") from error
        except BadVersion as error:
            raise Fenced(f"{self.path} was written by another owner: {error}") from error
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
        node = await self._metadata.get(self.path)
        if node is None or node.stat.version != self._expected:
            raise Fenced(f"{self.path} was written by another owner")
