"""The operating system's disk behind `runtime.disk`.

Appends run on one thread per file, so that write and fdatasync never hold up the loop; every other
call is rare and short and runs on a small shared pool.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from anabranch.errors import FolderInUse
from anabranch.runtime.disk import WriteDone
from anabranch.runtime.network import Buffer

T = TypeVar("T")
_COPY_BYTES = 1 << 20
_WRITEV_BUFFERS_MAX = 1024  # IOV_MAX on Linux and macOS
_sync_data = getattr(os, "fdatasync", os.fsync)


def _write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    for start in range(0, len(buffers), _WRITEV_BUFFERS_MAX):
        group = buffers[start : start + _WRITEV_BUFFERS_MAX]
        wanted = sum(map(len, group))
        written = os.writev(fd, group)
        if written != wanted:
            rest = memoryview(b"".join(group))[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: str, fd: int, pool: ThreadPoolExecutor) -> None:
        self.path = path
        self._fd = fd
        self._pool = pool
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"append:{os.path.basename(path)}")
        self._loop = asyncio.get_running_loop()
        self._failure: OSError | None = None

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        self._writer.submit(self._append, buffers, sync, done)

    def _append(self, buffers: Sequence[Buffer], sync: bool, done: WriteDone) -> None:
        if self._failure is None:
            try:
                _write_all(self._fd, buffers)
                if sync:
                    _sync_data(self._fd)
            except OSError as error:
                self._failure = error
        self._loop.call_soon_threadsafe(done, self._failure)

    async def read_at(self, offset: int, length: int) -> bytes:
        """See `DiskFile.read_at`."""
        return await self._loop.run_in_executor(self._pool, os.pread, self._fd, length, offset)

    async def size(self) -> int:
        """See `DiskFile.size`."""
        return os.fstat(self._fd).st_size

    async def truncate(self, length: int) -> None:
        """See `DiskFile.truncate`."""

        def cut() -> None:
            os.ftruncate(self._fd, length)
            os.fsync(self._fd)

        await self._loop.run_in_executor(self._writer, cut)

    async def write_again(self, offset: int) -> None:
        """See `DiskFile.write_again`."""

        def again() -> None:
            # The file's own descriptor appends, whatever position it is given.
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                at = offset
                while data := os.pread(self._fd, _COPY_BYTES, at):
                    at += os.pwrite(fd, data, at)
                os.fsync(fd)
            finally:
                os.close(fd)

        await self._loop.run_in_executor(self._writer, again)

    async def close(self) -> None:
        """See `DiskFile.close`."""
        await self._loop.run_in_executor(self._writer, os.close, self._fd)
        self._writer.shutdown(wait=False)


class RealFolderLock:
    """An advisory lock on the file `lock` in a folder."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """See `FolderLock.release`."""
        os.close(self._fd)


class RealDisk:
    """Files and folders of the operating system."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="disk")

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        """See `Disk.open`."""
        assert not (create and read_only), f"{path} would stay empty"
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        fd = await self._run(lambda: os.open(path, flags, 0o640))
        return RealFile(path, fd, self._pool)

    async def read(self, path: str) -> bytes:
        """See `Disk.read`."""

        def load() -> bytes:
            with open(path, "rb") as file:
                return file.read()

        return await self._run(load)

    async def replace(self, path: str, content: Buffer) -> None:
        """See `Disk.replace`."""

        def swap() -> None:
            beside = f"{path}.new"
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            try:
                _write_all(fd, [content])
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(beside, path)
            _sync_folder(os.path.dirname(path) or ".")

        await self._run(swap)

    async def rename(self, path: str, name: str) -> None:
        """See `Disk.rename`."""

        def rename() -> None:
            folder = os.path.dirname(path) or "."
            os.replace(path, os.path.join(folder, name))
            _sync_folder(folder)

        await self._run(rename)

    async def list(self, folder: str) -> list[str]:
        """See `Disk.list`."""

        def names() -> list[str]:
            try:
                return sorted(os.listdir(folder))
            except FileNotFoundError:
                return []

        return await self._run(names)

    async def make_folder(self, folder: str) -> None:
        """See `Disk.make_folder`."""

        def make() -> None:
            missing = []
            here = os.path.abspath(folder)
            while not os.path.isdir(here):
                missing.append(here)
                here = os.path.dirname(here)
            for path in reversed(missing):
                os.makedirs(path, 0o750, exist_ok=True)
                _sync_folder(os.path.dirname(path))

        await self._run(make)

    async def remove(self, path: str) -> None:
        """See `Disk.remove`."""

        def unlink() -> None:
            os.unlink(path)
            _sync_folder(os.path.dirname(path) or ".")

        await self._run(unlink)

    async def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return await self._run(lambda: os.path.exists(path))

    async def sync_folder(self, folder: str) -> None:
        """See `Disk.sync_folder`."""
        await self._run(lambda: _sync_folder(folder))

    async def free_bytes(self, path: str) -> int:
        """See `Disk.free_bytes`."""

        def room() -> int:
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize

        return await self._run(room)

    def lock_folder(self, folder: str) -> RealFolderLock:
        """See `Disk.lock_folder`."""
        path = os.path.join(folder, "lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            # Whoever may only look can still see that nobody else holds it.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FolderInUse(
                f"{folder} is in use by another process: stop that one or choose another folder"
            ) from None
        return RealFolderLock(fd)

    def close(self) -> None:
        """Let the shared threads go."""
        self._pool.shutdown(wait=False)
