"""Planted bugs of `anabranch.journal`."""

from collections.abc import Sequence
from typing import Any

from anabranch.journal.journal import Journal
from anabranch.runtime.disk import DiskFile, WriteDone
from anabranch.runtime.network import Buffer
from anabranch.testing.planted import original, planted


class _UnsyncedFile:
    """Passes everything on, except the wish for a sync."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        self._file.append(buffers, sync=False, done=done)


@planted("journal_skips_sync", target="anabranch.journal.journal:Journal._use_file")
def journal_skips_sync(self: Journal, segment: int, file: DiskFile) -> None:
    """Records are acknowledged once written, before they are durable."""
    original("journal_skips_sync")(self, segment, _UnsyncedFile(file))
