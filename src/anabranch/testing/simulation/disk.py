"""The simulated disk of a machine and the door to it that each of its processes gets.

Every operation takes virtual time, so that crashes fall between any two of its steps. A write that
was under way when its process died is done wholly, partly or not at all.
"""

import asyncio
import contextlib
import errno
import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.errors import FolderInUse
from anabranch.runtime.disk import WriteDone
from anabranch.runtime.network import Buffer
from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.platter import Folder, Inode, Tree, canonical, failure
from anabranch.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from anabranch.testing.simulation.process import Incarnation

_CALL_S = 0.00002
_BYTES_PER_S = 500e6
_NO_LIMIT_BYTES = 1 << 50


class MachineDisk:
    """What scenarios and the nemesis turn, and what survives the processes."""

    def __init__(self, name: str, rng: random.Random, conditions: Conditions, trace: Trace) -> None:
        self.name = name
        self.rng = rng
        self.conditions = conditions
        self.trace = trace
        self.tree = Tree()
        self.slowness = 1.0
        self.capacity_bytes: int | None = None
        """Room for all files together; None is no limit."""
        self.locks: dict[str, SimulatedFolderLock] = {}
        self._used_bytes = 0
        self._failures: list[tuple[str, str, int]] = []

    # --- faults -------------------------------------------------------------------------------

    def power_cut(self) -> None:
        """Forget what was not synced, all of it or in part."""
        self.tree.root.power_cut(self.rng, holes=self.conditions.torn_holes)
        self._used_bytes = sum(len(inode.seen) for _, inode in self.tree.files())
        self.locks.clear()

    def slow_down(self, factor: float) -> None:
        """Make every operation take longer; 1 undoes."""
        self.trace.record(f"disk {self.name} slowness {factor}")
        self.slowness = factor

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Rot one bit of a file at rest."""
        inode = self.tree.file(path)
        self.trace.record(f"disk {self.name} flip {path} {offset}.{bit}")
        inode.seen[offset] ^= 1 << bit
        if offset < len(inode.durable):
            inode.durable[offset] ^= 1 << bit

    def fail_next(self, operation: str, path: str = "", code: int = errno.EIO) -> None:
        """Let the next `write`, `sync` or `read` of a path that starts so fail once."""
        assert operation in ("write", "sync", "read"), f"no such operation: {operation}"
        self.trace.record(f"disk {self.name} will fail {operation} of {path or 'any file'}")
        self._failures.append((operation, path, code))

    def forget_failures(self) -> None:
        """Take back the failures that were ordered and have not happened."""
        self._failures.clear()

    def fill_up(self, *, spare_bytes: int) -> None:
        """Leave that much room and no more."""
        self.capacity_bytes = self._used_bytes + spare_bytes
        self.trace.record(f"disk {self.name} capacity {self.capacity_bytes}")

    def make_room(self) -> None:
        """Undo `fill_up`."""
        self.capacity_bytes = None

    def free_bytes(self) -> int | None:
        """Room that is left; None is no limit."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self._used_bytes)

    def process_died(self, life: "Incarnation") -> None:
        """Finish or tear the writes under way and release the locks of a process."""
        for file in list(life.files):
            file.tear()
        for folder, lock in list(self.locks.items()):
            if lock.owner is life:
                del self.locks[folder]

    # --- what doors use -----------------------------------------------------------------------

    def call_s(self, byte_count: int = 0) -> float:
        """Draw how long an operation without a sync takes."""
        return (_CALL_S * (1 + self.rng.random()) + byte_count / _BYTES_PER_S) * self.slowness

    def sync_s(self) -> float:
        """Draw how long a sync takes; a few take much longer."""
        draw = self.rng.random()
        return self.conditions.sync_s * (0.5 + draw + 20 * draw**16) * self.slowness

    def check(self, operation: str, path: str) -> None:
        """Raise the error that was ordered for this operation, once."""
        for index, (wanted, prefix, code) in enumerate(self._failures):
            if wanted == operation and path.startswith(prefix):
                del self._failures[index]
                self.trace.record(f"disk {self.name} fails {operation} of {path}")
                raise failure(code, path)

    def write(self, inode: Inode, content: bytes, path: str) -> None:
        """Append to the seen bytes, as much as there is room for."""
        self.check("write", path)
        room = self.free_bytes()
        short = room is not None and room < len(content)
        if short:
            content = content[:room]
        inode.seen += content
        self._used_bytes += len(content)
        if short:
            self.trace.record(f"disk {self.name} is full at {path}")
            raise failure(errno.ENOSPC, path)

    def sync(self, inode: Inode, path: str) -> None:
        """Make a file durable."""
        try:
            self.check("sync", path)
        except OSError:
            inode.fail_sync(self.rng)
            raise
        inode.sync()
        self.trace.record(f"sync {self.name}:{path} {len(inode.seen)}")

    def freed(self, byte_count: int) -> None:
        """Count bytes that no name leads to any more."""
        self._used_bytes -= byte_count


class SimulatedFolderLock:
    """A claim on a folder."""

    def __init__(self, owner: "Incarnation", disk: MachineDisk, folder: str) -> None:
        self.owner = owner
        self._disk = disk
        self._folder = folder

    def release(self) -> None:
        """See `FolderLock.release`."""
        if self._disk.locks.get(self._folder) is self:
            del self._disk.locks[self._folder]


class FileHandle:
    """An open file of a process: the simulated `DiskFile`."""

    def __init__(self, owner: "Incarnation", disk: MachineDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._owner = owner
        self._disk = disk
        self._inode = inode
        self._pending: deque[tuple[Sequence[Buffer], bool, WriteDone]] = deque()
        self._busy_until = 0.0
        self._failure: OSError | None = None
        self._closed = False
        owner.files[self] = None

    def append(self, buffers: Sequence[Buffer], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        assert not self._closed, f"{self.path} is closed"
        if not self._owner.alive:
            return
        loop, disk = self._owner.loop, self._disk
        taken = disk.call_s(sum(map(len, buffers))) + (disk.sync_s() if sync else 0.0)
        self._busy_until = max(self._busy_until, loop.time()) + taken
        self._pending.append((buffers, sync, done))
        loop.call_at(self._busy_until, self._finish_append, context=self._owner.context)

    def _finish_append(self) -> None:
        buffers, sync, done = self._pending.popleft()
        if self._failure is None:
            try:
                self._disk.write(self._inode, b"".join(buffers), self.path)
                if sync:
                    self._disk.sync(self._inode, self.path)
            except OSError as error:
                self._failure = error
        done(self._failure)

    def refuse_appends(self) -> None:
        """It was opened for reading alone."""
        self._failure = failure(errno.EBADF, self.path)

    async def read_at(self, offset: int, length: int) -> bytes:
        """See `DiskFile.read_at`."""
        await self._pace(length)
        self._disk.check("read", self.path)
        return bytes(self._inode.seen[offset : offset + length])

    async def size(self) -> int:
        """See `DiskFile.size`."""
        return len(self._inode.seen)

    async def truncate(self, length: int) -> None:
        """See `DiskFile.truncate`."""
        await self._drain()
        before = len(self._inode.seen)
        self._inode.truncate(length)
        self._disk.freed(before - length)
        await asyncio.sleep(self._disk.sync_s())
        self._disk.sync(self._inode, self.path)

    async def write_again(self, offset: int) -> None:
        """See `DiskFile.write_again`."""
        await self._drain()
        self._disk.check("write", self.path)
        self._inode.rewrite(offset)
        await asyncio.sleep(self._disk.sync_s())
        self._disk.sync(self._inode, self.path)

    async def close(self) -> None:
        """See `DiskFile.close`."""
        await self._drain()
        self._closed = True
        self._owner.files.pop(self, None)

    def tear(self) -> None:
        """The process died: some of what was under way reached the kernel."""
        rng = self._disk.rng
        whole = rng.randrange(len(self._pending) + 1)
        pending = list(self._pending)
        self._pending.clear()
        if self._failure is not None:
            return
        with contextlib.suppress(OSError):
            to_sync = False
            for index, (buffers, sync, _) in enumerate(pending[: whole + 1]):
                content = b"".join(buffers)
                if index == whole:
                    content = content[: rng.choice((0, rng.randrange(len(content) + 1)))]
                if to_sync and content:
                    # A write begins only after the sync that was asked for before it.
                    self._disk.sync(self._inode, self.path)
                self._disk.write(self._inode, content, self.path)
                to_sync = sync

    async def _pace(self, byte_count: int = 0) -> None:
        await self._owner.stay_alive()
        await asyncio.sleep(self._disk.call_s(byte_count))

    async def _drain(self) -> None:
        """Wait for the appends called so far: an empty one completes after them."""
        await self._owner.stay_alive()
        drained = asyncio.Event()
        self.append((), sync=False, done=lambda _: drained.set())
        await drained.wait()


class ProcessDisk:
    """The `Disk` of one process."""

    def __init__(self, owner: "Incarnation", disk: MachineDisk) -> None:
        self._owner = owner
        self._disk = disk
        self._tree = disk.tree

    async def _pace(self, byte_count: int = 0) -> None:
        await self._owner.stay_alive()
        await asyncio.sleep(self._disk.call_s(byte_count))

    async def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FileHandle:
        """See `Disk.open`."""
        await self._pace()
        if create:
            folder, name = self._tree.parent(path)
            if name in folder.seen:
                raise failure(errno.EEXIST, path)
            folder.change({name: Inode()})
        handle = FileHandle(self._owner, self._disk, path, self._tree.file(path))
        if read_only:
            handle.refuse_appends()
        return handle

    async def read(self, path: str) -> bytes:
        """See `Disk.read`."""
        await self._pace()
        inode = self._tree.file(path)
        await self._pace(len(inode.seen))
        self._disk.check("read", path)
        return bytes(inode.seen)

    async def replace(self, path: str, content: Buffer) -> None:
        """See `Disk.replace`; leaves `path.new` behind in a crash, as the real one does."""
        await self._pace()
        folder, name = self._tree.parent(path)
        beside = f"{name}.new"
        self._forget(folder.seen.get(beside))
        inode = Inode()
        folder.change({beside: inode})
        await self._pace(len(content))
        self._disk.write(inode, bytes(content), f"{path}.new")
        await asyncio.sleep(self._disk.sync_s())
        self._disk.sync(inode, f"{path}.new")
        await self._pace()
        if isinstance(folder.seen.get(name), Folder):
            raise failure(errno.EISDIR, path)
        self._forget(folder.seen.get(name))
        folder.change({beside: None, name: inode})
        await asyncio.sleep(self._disk.sync_s())
        self._sync_names(path.rpartition("/")[0])

    async def rename(self, path: str, name: str) -> None:
        """See `Disk.rename`."""
        await self._pace()
        folder, before = self._tree.parent(path)
        inode = self._tree.file(path)
        self._forget(folder.seen.get(name))
        folder.change({before: None, name: inode})
        await asyncio.sleep(self._disk.sync_s())
        self._sync_names(path.rpartition("/")[0])

    async def list(self, folder: str) -> list[str]:
        """See `Disk.list`."""
        await self._pace()
        try:
            return sorted(self._tree.folder(folder).seen)
        except FileNotFoundError:
            return []

    async def make_folder(self, folder: str) -> None:
        """See `Disk.make_folder`."""
        await self._pace()
        await asyncio.sleep(self._disk.sync_s())
        self._tree.make_folders(folder)

    async def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        await self._pace()
        self._forget(self._tree.file(path))
        folder, name = self._tree.parent(path)
        folder.change({name: None})
        await asyncio.sleep(self._disk.sync_s())
        self._sync_names(path.rpartition("/")[0])

    async def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        await self._pace()
        return self._tree.exists(path)

    async def sync_folder(self, folder: str) -> None:
        """See `Disk.sync_folder`."""
        await self._pace()
        self._tree.folder(folder)
        await asyncio.sleep(self._disk.sync_s())
        self._sync_names(folder)

    async def free_bytes(self, path: str) -> int:
        """See `Disk.free_bytes`; known without going to the disk, so that it takes no time."""
        await self._owner.stay_alive()
        if not self._tree.exists(path):
            raise failure(errno.ENOENT, path)
        free = self._disk.free_bytes()
        return _NO_LIMIT_BYTES if free is None else free

    def lock_folder(self, folder: str) -> SimulatedFolderLock:
        """See `Disk.lock_folder`."""
        place = canonical(folder)
        names = self._tree.folder(folder)
        lock = SimulatedFolderLock(self._owner, self._disk, place)
        if not self._owner.alive:
            return lock
        if place in self._disk.locks:
            raise FolderInUse(
                f"{folder} is in use by another process: stop that one or choose another folder"
            )
        if "lock" not in names.seen:
            names.change({"lock": Inode()})
        self._disk.locks[place] = lock
        return lock

    def _sync_names(self, folder: str) -> None:
        self._disk.check("sync", folder)
        self._tree.folder(folder).sync()
        self._disk.trace.record(f"sync {self._disk.name}:{folder}/")

    def _forget(self, node: object) -> None:
        if isinstance(node, Inode):
            self._disk.freed(len(node.seen))
