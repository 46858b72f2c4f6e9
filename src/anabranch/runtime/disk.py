"""The door to the disk.

Paths are plain strings with `/`. Errors are `OSError`s as the operating system gives them. A write
is durable only after a sync of the file, and a new, renamed or removed name only after a sync of
its folder; the simulated disk forgets everything else in a power cut.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.runtime.network import Buffer

WriteDone = Callable[[OSError | None], None]


class DiskFile(Protocol):
    """One open file that is appended to and read at positions."""

    @property
    def path(self) -> str:
        """The name it was opened by."""
        ...

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        """Write all buffers at the end, then fdatasync if `sync`; call `done` on the loop.

        Appends complete in the order they were called. After an error the length of the file is
        unknown and every later append fails too, also one that was already called: nothing whole
        may follow something torn. The buffers must not change until `done`.
        """
        ...

    async def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        ...

    async def size(self) -> int:
        """Length in bytes, appends in flight not counted."""
        ...

    async def truncate(self, length: int) -> None:
        """Cut the file to `length` bytes and sync it."""
        ...

    async def write_again(self, offset: int) -> None:
        """Write the bytes from `offset` on once more, as they are read now, and sync them.

        After a failed sync the operating system may show bytes that never reached the disk and
        take them for clean; a later sync would not bring them there, this does.
        """
        ...

    async def close(self) -> None:
        """Wait for appends in flight, then close."""
        ...


class FolderLock(Protocol):
    """Proof that no other process uses a folder; released by `release` or by process death."""

    def release(self) -> None:
        """Give the folder back."""
        ...


class Disk(Protocol):
    """Files and folders."""

    async def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open for reading and appending; with `create` the file must not exist yet.

        With `read_only` for reading alone: an append fails with EBADF.
        """
        ...

    async def read(self, path: str) -> bytes:
        """Return a whole file."""
        ...

    async def replace(self, path: str, content: Buffer) -> None:
        """Write a file so that after any crash it is wholly the old or wholly the new one."""
        ...

    async def rename(self, path: str, name: str) -> None:
        """Give a file another name in its folder, durably, in place of what had that name."""
        ...

    async def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; [] if there is no such folder."""
        ...

    async def make_folder(self, folder: str) -> None:
        """Create a folder and its parents, durably; no error if it is there."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file durably."""
        ...

    async def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        ...

    async def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable."""
        ...

    async def free_bytes(self, path: str) -> int:
        """Room that this process may still fill where a file or folder is."""
        ...

    def lock_folder(self, folder: str) -> FolderLock:
        """Claim a folder for this process.

        Raises:
            FolderInUse: if another process holds it.
        """
        ...
