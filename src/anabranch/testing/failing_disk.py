"""A disk that fails on demand: wraps a real one and breaks the appends it is told to break."""

from collections.abc import Callable, Sequence

from anabranch.runtime.disk import DiskFile, WriteDone
from anabranch.runtime.network import Buffer
from anabranch.runtime.real_disk import RealDisk, RealFile

Verdict = Callable[[str, Sequence[Buffer]], OSError | None]
"""Gets the path and the buffers of an append; an error means: write nothing and fail with it."""


class FailingFile:
    """A file whose appends may fail."""

    def __init__(self, file: RealFile, disk: "FailingDisk") -> None:
        self._file = file
        self._disk = disk
        self._failure: OSError | None = None
        self.path = file.path
        self.read_at = file.read_at
        self.size = file.size
        self.truncate = file.truncate
        self.write_again = file.write_again
        self.close = file.close

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        if self._failure is None:
            self._failure = self._disk.verdict(self.path, buffers)
        error = self._failure
        self._disk.appends += 1

        def finish(failure: OSError | None) -> None:
            done(error or failure)

        self._file.append([] if error else buffers, sync=sync, done=finish)


class FailingDisk(RealDisk):
    """The machine's disk, with a `verdict` on every append."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.verdict: Verdict = lambda _path, _buffers: None

    async def open(  # type: ignore[override]
        self, path: str, *, create: bool = False, read_only: bool = False
    ) -> DiskFile:
        """See `Disk.open`."""
        file = await super().open(path, create=create, read_only=read_only)
        return FailingFile(file, self)
