"""The file of the coming segment, made before it is needed, so that no append waits for it."""

from collections.abc import Callable

from anabranch.errors import DiskFull
from anabranch.journal.files import SegmentFiles, storage_error
from anabranch.runtime.disk import DiskFile
from anabranch.runtime.tasks import Tasks


class NextFile:
    """At most one file that is made, or being made, in the background."""

    def __init__(self, files: SegmentFiles, ready: Callable[[], None]) -> None:
        """`ready` is called when a file is there, and when making it failed."""
        self._files = files
        self._ready = ready
        self._tasks = Tasks(self._broke)
        self._file: DiskFile | None = None
        self.is_being_made = False
        self.failure: OSError | None = None

    @property
    def broken(self) -> OSError | None:
        """Why making it failed, unless that was for lack of room: room may be made meanwhile."""
        if self.failure is None or isinstance(storage_error("", self.failure), DiskFull):
            return None
        return self.failure

    def prepare(self, segment: int) -> None:
        """Begin to make the file; nothing happens if that was begun before."""
        if self._file is None and not self.is_being_made and self.failure is None:
            self.is_being_made = True
            self._tasks.spawn("journal-next-segment", self._make(segment))

    async def _make(self, segment: int) -> None:
        try:
            self._file = await self._files.create(segment)
        except OSError as error:
            self.failure = error
        self.is_being_made = False
        self._ready()

    def _broke(self, _task: str, error: BaseException) -> None:
        self.is_being_made = False
        self.failure = OSError(str(error))
        self._ready()

    def take(self) -> DiskFile | None:
        """The file, once; None if it is not there yet."""
        file, self._file = self._file, None
        return file

    async def close(self) -> None:
        """Close a file that was not taken; call it when nothing is being made."""
        await self._tasks.close()
        if self._file is not None:
            await self._file.close()
