"""Our Oxia store beside a bare loop over grpc.aio and the client `oxia` of the package index.

Each has a real server with one shard to itself.

The bare loop knows the shard, puts keys without looking whether their parents are there, and looks
at no more of an answer than it must: it shows what the server and the gRPC library allow.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.testing.servers.failures import FetchFailed
from anabranch.testing.servers.oxia import Oxia, oxia
from benchmarks import published_oxia
from benchmarks.metadata_rates import IN_FLIGHT, MEASURES, VALUE, Side, measure, store_side
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import SideRun

_SERVICE: Final = "/io.oxia.proto.v1.OxiaClient/"
_SHARD: Final = 0
_PAGE: Final = 1000
_WINDOW: Final = 4
_HEADERS: Final = (("namespace", "default"), ("shard-id", str(_SHARD)))


class RawSide:
    """One channel, and one stream for all writes."""

    def __init__(self, address: str) -> None:
        options = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._writes: Any = self._channel.stream_stream(f"{_SERVICE}WriteStream")(metadata=_HEADERS)

    async def close(self) -> None:
        """End the connection."""
        self._writes.cancel()
        await self._channel.close()

    async def _send(self, paths: Sequence[str]) -> None:
        request = pb.WriteRequest(
            shard=_SHARD, puts=[pb.PutRequest(key=path, value=VALUE) for path in paths]
        )
        await self._writes.write(request.SerializeToString())

    async def _answer(self) -> None:
        answer = pb.WriteResponse.FromString(await self._writes.read())
        assert all(put.status == pb.OK for put in answer.puts)

    async def _write(self, paths: Sequence[str], page: int, window: int) -> None:
        under_way = 0
        for start in range(0, len(paths), page):
            await self._send(paths[start : start + page])
            under_way += 1
            if under_way >= window:
                await self._answer()
                under_way -= 1
        for _ in range(under_way):
            await self._answer()

    async def write_all(self, paths: Sequence[str]) -> None:
        """See `Side.write_all`."""
        await self._write(paths, _PAGE, _WINDOW)

    async def read_all(self) -> int:
        """See `Side.read_all`."""
        request = pb.RangeRequest(shard=_SHARD, start_inclusive="/", end_exclusive="")
        found = []
        scan = self._channel.unary_stream(f"{_SERVICE}RangeScan")
        async for data in scan(request.SerializeToString(), metadata=_HEADERS):
            found += [
                (record.key, record.value, record.version.modifications_count)
                for record in pb.RangeScanResponse.FromString(data).records
            ]
        return len(found)

    async def get(self, path: str) -> None:
        """See `Side.get`."""
        await self.get_many([path])

    async def put(self, path: str) -> None:
        """See `Side.put`."""
        await self._write([path], 1, 1)

    async def get_many(self, paths: Sequence[str]) -> None:
        """See `Side.get_many`."""
        read = self._channel.unary_stream(f"{_SERVICE}Read")
        for start in range(0, len(paths), IN_FLIGHT):
            gets = [
                pb.GetRequest(key=path, include_value=True) for path in paths[start:][:IN_FLIGHT]
            ]
            request = pb.ReadRequest(shard=_SHARD, gets=gets)
            async for data in read(request.SerializeToString(), metadata=_HEADERS):
                for answer in pb.ReadResponse.FromString(data).gets:
                    assert answer.status == pb.OK

    async def put_many(self, paths: Sequence[str]) -> None:
        """See `Side.put_many`."""
        await self._write(paths, IN_FLIGHT, 1)


@asynccontextmanager
async def _opened(name: str, address: str, url: str) -> AsyncIterator[Side]:
    if name == "anabranch":
        async with store_side(url) as ours:
            yield ours
        return
    side = RawSide(address)
    try:
        yield side
    finally:
        await side.close()


async def run_side(name: str, server: Oxia) -> SideRun:
    """All figures of "anabranch" or "raw"."""
    async with _opened(name, server.address, server.url) as side:
        return await measure(side, name)


def run(options: Options) -> None:
    sides: tuple[str, ...] = ("anabranch",) if options.profile else ("anabranch", "raw")
    published: Path | None = None
    if not options.profile:
        try:
            published = published_oxia.prepare(print)
            sides += (published_oxia.SIDE,)
        except FetchFailed as error:
            print(f"without the client of the package index: {error}", file=sys.stderr)

    def one(name: str, _options: Options, _say: Callable[[str], None]) -> SideRun:
        # A server of its own for each side: Oxia has no chroot to keep them apart.
        with oxia() as server:
            if published is not None and name == published_oxia.SIDE:
                return published_oxia.run_side(published, server.address)
            return asyncio.run(run_side(name, server))

    run_pairs("metadata_oxia", MEASURES, one, replace(options, sides=sides))
