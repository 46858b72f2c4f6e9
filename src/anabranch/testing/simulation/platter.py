"""What a simulated disk holds: the kernel's view, what is durable, and what a power cut leaves.

Pure: no time, no tasks, no processes. `disk.py` adds those.
"""

import errno
import os
import random
from collections.abc import Iterator

PAGE_BYTES = 4096


def failure(code: int, path: str) -> OSError:
    """The error the operating system would give (of the fitting subclass)."""
    return OSError(code, os.strerror(code), path)


class Inode:
    """The bytes of one file, seen and durable; they agree on the first `settled` bytes."""

    __slots__ = ("durable", "seen", "settled")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.settled = 0

    def truncate(self, length: int) -> None:
        """Cut or, as the operating system does, fill up with zeros."""
        del self.seen[length:]
        self.seen.extend(bytes(length - len(self.seen)))
        self.settled = min(self.settled, length)

    def rewrite(self, offset: int) -> None:
        """Count the bytes from `offset` on as not yet durable, whatever was synced before."""
        self.settled = min(self.settled, offset)

    def sync(self) -> None:
        """Make the seen bytes durable."""
        del self.durable[self.settled :]
        self.durable += self.seen[self.settled :]
        self.settled = len(self.seen)

    def fail_sync(self, rng: random.Random) -> None:
        """Drop the unsynced bytes as Linux may: the pages count as clean, later syncs succeed."""
        start, length = self.settled, len(self.seen)
        # What was durable before under these bytes stays; zeros are where nothing was.
        self.durable.extend(bytes(max(0, length - len(self.durable))))
        if rng.random() < 0.5:
            self.seen[start:] = self.durable[start:length]
        self.settled = length

    def power_cut(self, rng: random.Random, *, holes: bool) -> None:
        """Keep what is durable and whatever luck leaves of the rest."""
        kept = bytes(self.durable[: self.settled])
        old, new = bytes(self.durable[self.settled :]), bytes(self.seen[self.settled :])
        kept += new if old == new else rng.choice((old, new, _torn(old, new, rng, holes=holes)))
        self.seen[:] = kept
        self.durable[:] = kept
        self.settled = len(kept)


def _torn(old: bytes, new: bytes, rng: random.Random, *, holes: bool) -> bytes:
    """Part of bytes that were never synced: a prefix, a prefix and zeros, or some pages.

    Where the new bytes did not come to be, the old ones show, and zeros beyond their end.
    """

    def before(start: int, length: int) -> bytes:
        return old[start : start + length].ljust(length, b"\0")

    kept = bytearray(new[: rng.randrange(len(new) + 1)])
    shape = rng.random()
    if shape < 0.2:
        kept += before(len(kept), rng.randrange(len(new) - len(kept) + 1))
    elif shape < 0.4 and holes:
        for start in range(0, len(kept), PAGE_BYTES):
            if rng.random() < 0.5:
                length = len(kept[start : start + PAGE_BYTES])
                kept[start : start + length] = before(start, length)
    return bytes(kept) + old[len(kept) :]


class Folder:
    """Names, seen and durable, and the changes in between, in order."""

    __slots__ = ("changes", "durable", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changes: list[dict[str, Node | None]] = []

    def change(self, names: "dict[str, Node | None]") -> None:
        """Set or (None) remove names; all of one call become durable together."""
        _apply(self.seen, names)
        self.changes.append(names)

    def sync(self) -> None:
        """Make the names durable."""
        for names in self.changes:
            _apply(self.durable, names)
        self.changes.clear()

    def power_cut(self, rng: random.Random, *, holes: bool) -> None:
        """Keep the durable names and a prefix of the later changes."""
        for names in self.changes[: rng.randrange(len(self.changes) + 1)]:
            _apply(self.durable, names)
        self.changes.clear()
        self.seen = dict(self.durable)
        for node in self.seen.values():
            node.power_cut(rng, holes=holes)


Node = Inode | Folder


def _apply(target: dict[str, Node], names: dict[str, Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            target.pop(name, None)
        else:
            target[name] = node


class Tree:
    """Folders and files by path. Relative paths start at the root."""

    def __init__(self) -> None:
        self.root = Folder()

    def lookup(self, path: str) -> Node:
        """What the path names.

        Raises:
            OSError: if that is nothing, or the way leads through a file.
        """
        node: Node = self.root
        for part in _parts(path):
            if isinstance(node, Inode):
                raise failure(errno.ENOTDIR, path)
            if part not in node.seen:
                raise failure(errno.ENOENT, path)
            node = node.seen[part]
        return node

    def exists(self, path: str) -> bool:
        """Whether the path names anything."""
        try:
            self.lookup(path)
        except OSError:
            return False
        return True

    def file(self, path: str) -> Inode:
        """The file at a path.

        Raises:
            OSError: if there is none.
        """
        node = self.lookup(path)
        if isinstance(node, Folder):
            raise failure(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> Folder:
        """The folder at a path.

        Raises:
            OSError: if there is none.
        """
        node = self.lookup(path)
        if isinstance(node, Inode):
            raise failure(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        """The folder a path is in, and its name there.

        Raises:
            OSError: if there is no such folder.
        """
        parts = _parts(path)
        if not parts:
            raise failure(errno.EISDIR, path)
        return self.folder("/".join(parts[:-1])), parts[-1]

    def make_folders(self, path: str) -> None:
        """Create what is missing of a path, durably."""
        here = self.root
        for part in _parts(path):
            node = here.seen.get(part)
            if node is None:
                node = Folder()
                here.change({part: node})
                here.sync()
            if isinstance(node, Inode):
                raise failure(errno.EEXIST, path)
            here = node

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Every file with its path, in a fixed order."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            if isinstance(node, Inode):
                yield path, node
            else:
                names = sorted(node.seen, reverse=True)
                waiting += ((f"{path}/{name}", node.seen[name]) for name in names)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def canonical(path: str) -> str:
    """One spelling for each place."""
    return "/" + "/".join(_parts(path))
