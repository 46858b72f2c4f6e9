"""Planted bugs of format versions: each reads bytes of an unknown version as if it knew them."""

import json
from collections.abc import Mapping
from typing import Any

from anabranch.journal.format import FORMAT_VERSION as JOURNAL_VERSION
from anabranch.metadata import commands, snapshot
from anabranch.metadata.counters import BlockCounter
from anabranch.metadata.features import LevelRange
from anabranch.testing.planted import original, planted


@planted("journal_of_any_version", target="anabranch.journal.format:check_header")
def journal_of_any_version(header: bytes, path: str, kind: bytes, segment: int) -> int:
    """A segment is read whatever version its header says."""
    known = header[:8] + JOURNAL_VERSION.to_bytes(2, "big") + header[10:]
    return int(original("journal_of_any_version")(known, path, kind, segment))


@planted("snapshot_of_any_version", target="anabranch.metadata.snapshot:SnapshotReader.__init__")
def snapshot_of_any_version(self: snapshot.SnapshotReader, file: str, content: bytes) -> None:
    """A snapshot is read whatever version it says."""
    known = content[:8] + snapshot.FORMAT_VERSION.to_bytes(4, "big") + content[12:]
    original("snapshot_of_any_version")(self, file, known)


@planted("log_record_of_any_version", target="anabranch.consensus.log:decode")
def log_record_of_any_version(data: memoryview) -> Any:
    """A log record is read whatever version it says."""
    return original("log_record_of_any_version")(memoryview(b"\1" + bytes(data[1:])))


@planted("command_of_any_version", target="anabranch.metadata.commands:decode")
def command_of_any_version(data: bytes) -> Any:
    """A command is read whatever version it says."""
    return original("command_of_any_version")(bytes([commands.FORMAT_VERSION]) + data[1:])


def _with(document: bytes, **known: int) -> bytes:
    return json.dumps({**json.loads(document), **known}).encode()


@planted("data_folder_of_any_version", target="anabranch.server.data_folder:read_identity")
def data_folder_of_any_version(file: str, content: bytes) -> Any:
    """A data folder is used whatever version its identity says."""
    return original("data_folder_of_any_version")(file, _with(content, version=1))


@planted("features_of_any_version", target="anabranch.metadata.features:decode_features")
def features_of_any_version(value: bytes) -> Any:
    """The document of feature levels is read whatever format it says."""
    return original("features_of_any_version")(_with(value, format=1))


@planted("counter_of_any_version", target="anabranch.metadata.counters:BlockCounter._decode")
def counter_of_any_version(self: BlockCounter, value: bytes) -> Any:
    """A counter, as that of the ledger ids, is read whatever version it says."""
    return original("counter_of_any_version")(self, _with(value, version=1))


@planted("catalog_of_any_version", target="anabranch.ledgers.catalog:decode_catalog")
def catalog_of_any_version(value: bytes) -> Any:
    """The catalog of storage clusters is read whatever version it says."""
    return original("catalog_of_any_version")(_with(value, version=1))


@planted("feature_levels_unchecked", target="anabranch.metadata.features:check_levels")
def feature_levels_unchecked(levels: Mapping[str, int], build: Mapping[str, LevelRange]) -> None:
    """A process starts on data that needs another build."""


@planted("document_without_a_test", target="anabranch.metadata.counters:BlockCounter._advance")
async def document_without_a_test(self: BlockCounter, floor: int, count: int) -> Any:
    """A document is kept whose version nobody checks."""
    await self._store.put("/anabranch/scratch", b"{}")
    return await original("document_without_a_test")(self, floor, count)
