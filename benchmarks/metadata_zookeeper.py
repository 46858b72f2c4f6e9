"""Our ZooKeeper store beside a bare loop over a socket and beside kazoo, on one real server.

The bare loop sends frames made by hand and looks at no more of an answer than it must: it shows
what the server and Python's sockets allow. It reads and writes in bulk with multiRead and multi as
the store does; kazoo has no multiRead and pipelines single reads, which is its fastest way.
"""

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from kazoo.client import KazooClient  # type: ignore[import-untyped]

from anabranch.testing.servers.zookeeper import zookeeper
from benchmarks.metadata_rates import IN_FLIGHT, MEASURES, VALUE, Side, measure, store_side
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import SideRun

_OPEN_ACL: Final = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_END: Final = struct.pack(">ibi", -1, 1, -1)
_STAT_BYTES: Final = 68
_CREATE, _GET, _SET, _CHILDREN, _MULTI, _MULTI_READ = 1, 4, 5, 8, 14, 22
_PAGE: Final = 1000
_WINDOW: Final = 4


def _text(words: str) -> bytes:
    data = words.encode()
    return struct.pack(">i", len(data)) + data


class RawSide:
    """A blocking socket; nothing else happens while it waits."""

    def __init__(self, port: int, root: str) -> None:
        self._root = root
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=1 << 20)
        hello = struct.pack(">iqiqi16sb", 0, 0, 30_000, 0, 16, bytes(16), 0)
        self._socket.sendall(struct.pack(">i", len(hello)) + hello)
        self._answer()
        self._ask([(_CREATE, _text(root) + struct.pack(">i", 0) + _OPEN_ACL + bytes(4))])

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def _answer(self) -> bytes:
        (length,) = struct.unpack(">i", self._file.read(4))
        answer: bytes = self._file.read(length)
        return answer

    def _send(self, requests: Sequence[tuple[int, bytes]]) -> None:
        self._socket.sendall(
            b"".join(struct.pack(">iii", len(body) + 8, 1, code) + body for code, body in requests)
        )

    def _ask(self, requests: Sequence[tuple[int, bytes]]) -> list[bytes]:
        self._send(requests)
        return [self._checked(self._answer()) for _ in requests]

    def _checked(self, answer: bytes) -> bytes:
        (error,) = struct.unpack_from(">i", answer, 12)
        assert not error, error
        return answer

    def _windows(self, requests: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
        """Answers to large requests, some of which are under way."""
        under_way = 0
        for request in requests:
            self._send([request])
            under_way += 1
            if under_way > _WINDOW:
                yield self._checked(self._answer())
                under_way -= 1
        for _ in range(under_way):
            yield self._checked(self._answer())

    async def write_all(self, paths: Sequence[str]) -> None:
        """See `Side.write_all`."""

        def pages() -> Iterator[tuple[int, bytes]]:
            for start in range(0, len(paths), _PAGE):
                parts = [
                    struct.pack(">ibi", _CREATE, 0, -1)
                    + _text(self._root + path)
                    + struct.pack(">i", len(VALUE))
                    + VALUE
                    + _OPEN_ACL
                    + bytes(4)
                    for path in paths[start : start + _PAGE]
                ]
                yield _MULTI, b"".join(parts) + _END

        for _ in self._windows(pages()):
            pass

    async def read_all(self) -> int:
        """See `Side.read_all`."""
        folders = self._names(self._root)
        paths = [self._root, *folders]
        paths += [path for folder in folders for path in self._names(folder)]
        return sum(map(self._values, self._windows(self._reads(paths))))

    def _names(self, path: str) -> list[str]:
        (answer,) = self._ask([(_CHILDREN, _text(path) + b"\0")])
        (count,) = struct.unpack_from(">i", answer, 16)
        at, found = 20, []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", answer, at)
            found.append(f"{path}/{answer[at + 4 : at + 4 + length].decode()}")
            at += 4 + length
        return sorted(found)

    def _reads(self, paths: list[str]) -> Iterator[tuple[int, bytes]]:
        for start in range(0, len(paths), _PAGE):
            parts = [
                struct.pack(">ibi", _GET, 0, -1) + _text(path) + b"\0"
                for path in paths[start : start + _PAGE]
            ]
            yield _MULTI_READ, b"".join(parts) + _END

    def _values(self, answer: bytes) -> int:
        at, found = 16, []
        while not answer[at + 4]:
            (length,) = struct.unpack_from(">i", answer, at + 9)
            at += 13
            value = answer[at : at + length]
            (version,) = struct.unpack_from(">i", answer, at + length + 32)
            found.append((value, version))
            at += length + _STAT_BYTES
        return len(found)

    def _get_request(self, path: str) -> tuple[int, bytes]:
        return _GET, _text(self._root + path) + b"\0"

    def _set_request(self, path: str) -> tuple[int, bytes]:
        length, any_version = struct.pack(">i", len(VALUE)), struct.pack(">i", -1)
        return _SET, _text(self._root + path) + length + VALUE + any_version

    async def get(self, path: str) -> None:
        """See `Side.get`."""
        self._ask([self._get_request(path)])

    async def put(self, path: str) -> None:
        """See `Side.put`."""
        self._ask([self._set_request(path)])

    async def get_many(self, paths: Sequence[str]) -> None:
        """See `Side.get_many`."""
        for start in range(0, len(paths), IN_FLIGHT):
            self._ask([self._get_request(path) for path in paths[start : start + IN_FLIGHT]])

    async def put_many(self, paths: Sequence[str]) -> None:
        """See `Side.put_many`."""
        for start in range(0, len(paths), IN_FLIGHT):
            self._ask([self._set_request(path) for path in paths[start : start + IN_FLIGHT]])


class KazooSide:
    """kazoo, which has threads of its own."""

    def __init__(self, port: int, root: str) -> None:
        self._client = KazooClient(hosts=f"127.0.0.1:{port}{root}")
        self._client.start()
        self._client.ensure_path("/")

    def close(self) -> None:
        """End the connection."""
        self._client.stop()
        self._client.close()

    async def write_all(self, paths: Sequence[str]) -> None:
        """See `Side.write_all`."""
        for start in range(0, len(paths), _PAGE):
            transaction = self._client.transaction()
            for path in paths[start : start + _PAGE]:
                transaction.create(path, VALUE)
            failed = [found for found in transaction.commit() if isinstance(found, Exception)]
            assert not failed, failed[0]

    async def read_all(self) -> int:
        """See `Side.read_all`."""
        folders = [f"/{name}" for name in sorted(self._client.get_children("/"))]
        paths = ["/", *folders]
        for folder in folders:
            paths += [f"{folder}/{name}" for name in sorted(self._client.get_children(folder))]
        return self._many(paths, self._client.get_async)

    def _many(self, paths: Sequence[str], operation: Callable[[str], Any]) -> int:
        count = 0
        for start in range(0, len(paths), IN_FLIGHT):
            asked = [operation(path) for path in paths[start : start + IN_FLIGHT]]
            for answer in asked:
                answer.get()
                count += 1
        return count

    async def get(self, path: str) -> None:
        """See `Side.get`."""
        self._client.get(path)

    async def put(self, path: str) -> None:
        """See `Side.put`."""
        self._client.set(path, VALUE)

    async def get_many(self, paths: Sequence[str]) -> None:
        """See `Side.get_many`."""
        self._many(paths, self._client.get_async)

    async def put_many(self, paths: Sequence[str]) -> None:
        """See `Side.put_many`."""
        self._many(paths, lambda path: self._client.set_async(path, VALUE))


@asynccontextmanager
async def _opened(name: str, port: int, root: str) -> AsyncIterator[Side]:
    if name == "anabranch":
        # The others do not read access rights either.
        async with store_side(f"zk:127.0.0.1:{port}{root}?export.acl=skip") as ours:
            yield ours
        return
    side = RawSide(port, root) if name == "raw" else KazooSide(port, root)
    try:
        yield side
    finally:
        side.close()


_numbers: Final = itertools.count()


async def run_side(name: str, port: int) -> SideRun:
    """All figures of "anabranch", "raw" or "kazoo" on the server at a port."""
    async with _opened(name, port, f"/{name}-{next(_numbers)}") as side:
        return await measure(side, name)


def run(options: Options) -> None:
    with zookeeper(memory=("-Xmx1g",)) as server:
        (port,) = server.ports

        def both(name: str, _options: Options, _say: Callable[[str], None]) -> SideRun:
            return asyncio.run(run_side(name, port))

        both("anabranch", options, print)  # the server's compiler warms up on it
        sides = ("anabranch",) if options.profile else ("anabranch", "raw", "kazoo")
        run_pairs("metadata_zookeeper", MEASURES, both, replace(options, sides=sides))
