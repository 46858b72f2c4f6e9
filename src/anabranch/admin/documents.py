"""Reads and changes documents of tenants, namespaces, clusters and topics in the metadata store.

A change is read, made and written on the condition that nobody wrote meanwhile, again until it is.
"""

from collections.abc import Callable
from typing import TypeVar

from anabranch.errors import BadVersion, FormatError, InputError, NotFound
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.policies import JsonDocument, decode, encode

D = TypeVar("D", bound=JsonDocument)


class Documents:
    """The documents in one store."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    async def get(self, kind: type[D], path: str) -> D | None:
        """Return a document, None if it is not there.

        Raises:
            FormatError: naming the path, if what is there is something else.
        """
        node = await self.store.get(path)
        return None if node is None else _decoded(kind, path, node.value)

    async def create(self, path: str, document: JsonDocument) -> bool:
        """Write a new document; False if there was one already.

        Raises:
            InputError: if it could not be read again.
        """
        try:
            await self.store.put(path, _readable(document), ABSENT)
        except BadVersion:
            return False
        return True

    async def change(self, kind: type[D], path: str, change: Callable[[D], D]) -> D:
        """Change a document and return what it is now.

        Raises:
            NotFound: if it is not there.
            InputError: if it could not be read again afterwards.
        """
        while True:
            node = await self.store.get(path)
            if node is None:
                raise NotFound(f"there is no {path}")
            changed = change(_decoded(kind, path, node.value))
            try:
                await self.store.put(path, _readable(changed), node.stat.version)
            except BadVersion:
                continue
            return changed

    async def delete(self, path: str) -> bool:
        """Remove a document; False if there was none."""
        try:
            await self.store.delete(path)
        except NotFound:
            return False
        return True


def _readable(document: JsonDocument) -> bytes:
    """A document as it is stored, if it can be read again: what cannot be shuts everybody out."""
    data = encode(document)
    try:
        decode(type(document), data)
    except FormatError as error:
        raise InputError(str(error)) from None
    return data


def _decoded(kind: type[D], path: str, data: bytes) -> D:
    # Pulsar leaves empty nodes where only the path matters.
    if not data:
        return kind()
    try:
        return decode(kind, data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
