"""Schema storage: every version in a ledger of its own, found through a node of the schema.

The formats are Pulsar's. A version is written to its ledger first and then published by a
conditional write of the node, so that of two writers one reads again and nothing is overwritten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    Fenced,
    FormatError,
    InputError,
    NotFound,
)
from anabranch.ids import Position
from anabranch.ledgers.clusters import CreatedLedger, StorageClusters
from anabranch.managed_ledger.durable_append import append_durably
from anabranch.managed_ledger.opening import discard_ledger, start_over
from anabranch.managed_ledger.schema_formats import (
    IndexEntry,
    SchemaInfo,
    decode_entry,
    decode_info,
    decode_locator,
    encode_entry,
    encode_info,
    encode_locator,
    extra_of_locator,
)
from anabranch.metadata.store import ABSENT, Expected, MetadataStore

SCHEMAS = "/schemas"
_VERSION_BYTES = 8
_NOWHERE = Position(-1, -1)
"""What the first version's entry says of its own place, which it cannot know."""
_DELETED_HASH = b""
"""Of a version that says that there is no schema; the hash of a schema is never empty."""


def version_bytes(version: int) -> bytes:
    """A version as it travels on the wire."""
    return version.to_bytes(_VERSION_BYTES, "big")


def version_of_bytes(data: bytes) -> int:
    """Undo `version_bytes`.

    Raises:
        FormatError: if it is not 8 bytes long.
    """
    if len(data) != _VERSION_BYTES:
        raise FormatError(f"a schema version has {_VERSION_BYTES} bytes, not {len(data)}")
    return int.from_bytes(data, "big")


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A schema with its version."""

    version: int
    info: SchemaInfo


class _Located(NamedTuple):
    """The node of a schema."""

    versions: tuple[IndexEntry, ...]
    expected: Expected
    """What it takes to replace it."""
    extra: bytes = b""
    """What others keep there."""


class SchemaStorage:
    """Stores the versions of schemas. Any number of processes may share it."""

    def __init__(self, *, metadata: MetadataStore, ledgers: StorageClusters) -> None:
        self._metadata = metadata
        self._ledgers = ledgers

    async def put_if_absent(self, schema_id: str, info: SchemaInfo, schema_hash: bytes) -> int:
        """Add a version, unless one with this hash is there; return its number.

        Raises:
            InputError: if the schema cannot be stored, or has no hash.
            ConflictError: if others keep adding versions.
        """
        if not schema_hash:
            raise InputError(f"a version of schema {schema_id} needs a hash; an empty one deletes")
        return await self._put(schema_id, encode_info(info), schema_hash)

    async def add_after(
        self, schema_id: str, info: SchemaInfo, schema_hash: bytes, known: Sequence[int]
    ) -> int:
        """Add a version that was judged by those that are known, oldest first; return its number.

        Raises:
            InputError: if the schema cannot be stored, or has no hash.
            ConflictError: if the versions are others by now; nothing was changed.
        """
        if not schema_hash:
            raise InputError(f"a version of schema {schema_id} needs a hash; an empty one deletes")
        return await self._put(schema_id, encode_info(info), schema_hash, known)

    async def mark_deleted(self, schema_id: str, user: str, timestamp_ms: int) -> int | None:
        """Add a version that says that there is no schema any more; older ones stay readable.

        Returns:
            Its number, or None if there is no schema.
        """
        if await self.get(schema_id) is None:
            return None
        info = SchemaInfo(schema_id, 0, b"", user, timestamp_ms, deleted=True)
        return await self._put(schema_id, encode_info(info), _DELETED_HASH)

    async def _put(
        self, schema_id: str, data: bytes, schema_hash: bytes, known: Sequence[int] | None = None
    ) -> int:
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            index, expected, extra = await self._locate(schema_id)
            if known is not None:
                if [entry.version for entry in _living(index)] != list(known):
                    raise ConflictError(f"schema {schema_id} got other versions meanwhile")
            elif (same := _version_of(index, schema_hash)) is not None:
                return same
            if schema_hash == _DELETED_HASH and index and not _living(index):
                return index[-1].version
            version = index[-1].version + 1 if index else 0
            before = index or (IndexEntry(version, _NOWHERE, schema_hash),)
            created, position = await self._write(schema_id, encode_entry(data, before))
            added = IndexEntry(version, position, schema_hash, created.stamp)
            locator = encode_locator((*index, added), extra)
            try:
                await self._metadata.put(_path(schema_id), locator, expected, guard=created.guard)
            except BadVersion:
                await discard_ledger(self._ledgers, created.place)
                continue
            except Fenced:
                if created.guard is None:
                    raise
                await start_over(self._ledgers, created)
                continue
            return version
        raise ConflictError(
            f"schema {schema_id} changed {limits.CONDITIONAL_WRITE_TRIES_MAX} times while a "
            "version was being added"
        )

    async def get(self, schema_id: str, version: int | None = None) -> StoredSchema | None:
        """Return a version, or None if there is no such.

        If none is named the newest, and None if the schema was marked as deleted.
        """
        index = (await self._locate(schema_id)).versions
        among = _living(index)[-1:] if version is None else index
        wanted = [entry for entry in among if version is None or entry.version == version]
        return await self._read(schema_id, wanted[-1]) if wanted else None

    async def find(self, schema_id: str, schema_hash: bytes) -> int | None:
        """Return the number of the version with this hash; None if there is none."""
        index = (await self._locate(schema_id)).versions
        return _version_of(index, schema_hash)

    async def versions(self, schema_id: str) -> list[StoredSchema]:
        """Return all versions since the schema was last marked as deleted, oldest first."""
        index = (await self._locate(schema_id)).versions
        return [await self._read(schema_id, entry) for entry in _living(index)]

    async def places(self, schema_id: str) -> list[IndexEntry]:
        """Return where each version since the last deletion is, oldest first."""
        index = (await self._locate(schema_id)).versions
        return list(_living(index))

    async def delete(self, schema_id: str) -> int:
        """Remove a schema with all its versions; return how many there were.

        Raises:
            NotFound: if there is none.
            ConflictError: if a version was added at the same time; nothing was removed.
        """
        index, expected, _ = await self._locate(schema_id)
        if not index:
            raise NotFound(f"there is no schema {schema_id}")
        await self._metadata.delete(_path(schema_id), expected)
        for entry in index:
            await discard_ledger(self._ledgers, entry.place)
        return len(index)

    async def _locate(self, schema_id: str) -> _Located:
        node = await self._metadata.get(_path(schema_id))
        if node is None:
            return _Located((), ABSENT)
        if not node.value:
            # Only there because another schema's path goes through it.
            return _Located((), node.stat.version)
        what = f"schema {schema_id}"
        extra = extra_of_locator(node.value, what)
        return _Located(decode_locator(node.value, what), node.stat.version, extra)

    async def _write(self, schema_id: str, payload: bytes) -> tuple[CreatedLedger, Position]:
        metadata = {
            "application": b"pulsar",
            "component": b"schema",
            "pulsar/schemaId": schema_id.encode(),
        }
        created = await self._ledgers.create(f"schema {schema_id}", metadata)
        try:
            entry_id = await append_durably(created.writer, payload)
            await created.writer.close()
        except AnabranchError:
            # No document names it, and none will.
            await discard_ledger(self._ledgers, created.place)
            raise
        return created, Position(created.place.ledger_id, entry_id)

    async def _read(self, schema_id: str, entry: IndexEntry) -> StoredSchema:
        what = f"version {entry.version} of schema {schema_id}"
        reader = await self._ledgers.open(entry.place)
        number = entry.position.entry_id
        found = await reader.read(number, number, max_bytes=limits.MESSAGE_BYTES_MAX)
        data = decode_entry(bytes(found[0].payload), what)
        return StoredSchema(entry.version, decode_info(data, what))


def _living(index: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
    """The versions after the last one that marks a deletion."""
    ends = [at for at, entry in enumerate(index, start=1) if entry.hash == _DELETED_HASH]
    return index[ends[-1] :] if ends else index


def _version_of(index: tuple[IndexEntry, ...], schema_hash: bytes) -> int | None:
    return next((e.version for e in _living(index) if e.hash == schema_hash), None)


def _path(schema_id: str) -> str:
    return f"{SCHEMAS}/{schema_id}"
