"""Pulsar's documents of schemas: bytes to values and back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from anabranch.errors import FormatError, InputError
from anabranch.generated import schema_registry_format_pb2 as registry
from anabranch.generated import schema_storage_format_pb2 as storage
from anabranch.ids import Position
from anabranch.ledgers.stamps import (
    NO_STAMP,
    LedgerPlace,
    Stamp,
    stamp_in,
    stamp_properties,
    without_stamp,
)

_AUTO_CONSUME = 21
_EXTERNAL = 22
"""The one type whose number is the same on the wire and in storage; others are one apart."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """One version of a schema as it is stored."""

    schema_id: str
    type: int
    """As on the wire: 0 none, 1 string, 2 JSON, 4 Avro, ..."""
    schema: bytes
    user: str = ""
    timestamp_ms: int = 0
    deleted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where one version of a schema is."""

    version: int
    position: Position
    hash: bytes
    stamp: Stamp = NO_STAMP
    """In which storage cluster its ledger is."""
    extra: bytes = b""
    """What others keep about it; written back as it was."""

    @property
    def place(self) -> LedgerPlace:
        """Which ledger it is in."""
        return LedgerPlace(self.position.ledger_id, self.stamp)


def _parse(kind: type[M], value: bytes, what: str) -> M:
    try:
        message = kind.FromString(value)
    except DecodeError as error:
        raise FormatError(f"{what} is not a {kind.DESCRIPTOR.name}: {error}") from None
    if not message.IsInitialized():
        raise FormatError(f"{what} is not a {kind.DESCRIPTOR.name}: a required field is missing")
    return message


def encode_info(info: SchemaInfo) -> bytes:
    """Write one version of a schema.

    Raises:
        InputError: if its type is one that is never stored.
    """
    if info.type == _AUTO_CONSUME or not 0 <= info.type <= _EXTERNAL:
        raise InputError(f"a schema of type {info.type} cannot be stored")
    message = registry.SchemaInfo(
        schema_id=info.schema_id,
        user=info.user,
        type=info.type if info.type == _EXTERNAL else info.type + 1,
        schema=info.schema,
        timestamp=info.timestamp_ms,
        deleted=info.deleted,
    )
    for key in sorted(info.properties):
        message.props.add(key=key, value=info.properties[key])
    return message.SerializeToString()


def decode_info(value: bytes, what: str) -> SchemaInfo:
    """Read one version of a schema.

    Raises:
        FormatError: if it is something else.
    """
    message = _parse(registry.SchemaInfo, value, what)
    return SchemaInfo(
        message.schema_id,
        message.type if message.type == _EXTERNAL else message.type - 1,
        message.schema,
        message.user,
        message.timestamp,
        message.deleted,
        {pair.key: pair.value for pair in message.props},
    )


def _index_message(entry: IndexEntry) -> storage.IndexEntry:
    message = storage.IndexEntry()
    message.MergeFromString(entry.extra)
    message.version, message.hash = entry.version, entry.hash
    position = message.position
    position.ledgerId, position.entryId = entry.position
    for key, value in stamp_properties(entry.stamp).items():
        position.properties.add(key=key, value=value)
    return message


def encode_entry(data: bytes, index: Sequence[IndexEntry]) -> bytes:
    """Write the ledger entry of one version, with the index of the versions before it."""
    entry = storage.SchemaEntry(schema_data=data, index=[_index_message(e) for e in index])
    return entry.SerializeToString()


def decode_entry(value: bytes, what: str) -> bytes:
    """Read the schema of a ledger entry.

    Raises:
        FormatError: if it is something else.
    """
    return _parse(storage.SchemaEntry, value, what).schema_data


def encode_locator(index: Sequence[IndexEntry], extra: bytes = b"") -> bytes:
    """Write the node of a schema: its newest version and all of them."""
    messages = [_index_message(entry) for entry in index]
    locator = storage.SchemaLocator()
    locator.MergeFromString(extra)
    locator.info.CopyFrom(messages[-1])
    locator.index.extend(messages)
    return locator.SerializeToString()


def decode_locator(value: bytes, what: str) -> tuple[IndexEntry, ...]:
    """Read the node of a schema: all versions, ascending.

    Raises:
        FormatError: if it is something else.
    """
    message = _parse(storage.SchemaLocator, value, what)
    return tuple(_index_entry(entry, what) for entry in message.index or [message.info])


def extra_of_locator(value: bytes, what: str) -> bytes:
    """What others keep in the node of a schema beside its versions.

    Raises:
        FormatError: if it is something else.
    """
    message = _parse(storage.SchemaLocator, value, what)
    message.ClearField("info")
    message.ClearField("index")
    return message.SerializePartialToString()


def _index_entry(entry: storage.IndexEntry, what: str) -> IndexEntry:
    position = Position(entry.position.ledgerId, entry.position.entryId)
    version, schema_hash = entry.version, entry.hash
    properties = {pair.key: pair.value for pair in entry.position.properties}
    stamp = stamp_in(properties, f"version {version} of {what}")
    kept = without_stamp(properties)
    for name in ("ledgerId", "entryId", "properties"):
        entry.position.ClearField(name)
    for key, value in kept.items():
        entry.position.properties.add(key=key, value=value)
    for name in ("version", "hash"):
        entry.ClearField(name)
    if not entry.position.SerializePartialToString():
        entry.ClearField("position")
    extra = entry.SerializePartialToString()
    return IndexEntry(version, position, schema_hash, stamp, extra)
