"""Talking to the leader of one shard: writes in one ordered stream, reads gathered to requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    OutcomeUnknown,
    ProtocolError,
    Unreachable,
)
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.requests import (
    SERVICE,
    M,
    OnAnswer,
    Whole,
    WriteOperation,
    WriteQueue,
    parse,
)
from anabranch.runtime.channels import CallFailed, Channel, Exchange, Replies
from anabranch.runtime.tasks import Tasks

T = TypeVar("T")
_CLOSED: Final = "the metadata store was closed"
Reads = list[tuple[pb.GetRequest, asyncio.Future[pb.GetResponse]]]


def _settle(future: asyncio.Future[Any], error: AnabranchError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever gave up waiting has not forgotten it


class ShardLink:
    """The way to one shard."""

    def __init__(self, number: int, namespace: str, channel: Channel, tasks: Tasks) -> None:
        self.number = number
        self._namespace = namespace
        self._channel = channel
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._queue = WriteQueue(number)
        self._wake = asyncio.Event()
        self._waking = False
        self._writing: asyncio.Task[Any] | None = None
        self._heard_s = 0.0
        """When the last answer to a write came, or the first of those under way was sent."""
        self._streams: dict[Replies, None] = {}
        self._gets: Reads = []
        self.over: AnabranchError | None = None
        """Why nothing is sent any more."""
        tasks.spawn(f"oxia-writes-{number}", self._write_on())

    @property
    def channel(self) -> Channel:
        """The way to the present leader."""
        return self._channel

    def moved(self, channel: Channel) -> None:
        """Another server leads the shard now: what is under way is asked again, or lost."""
        self._channel = channel
        if self._writing is not None:
            self._writing.cancel()
        for replies in list(self._streams):
            replies.cancel()

    async def close(self) -> None:
        """Wait for writes under way; those who ask afterwards are refused."""
        self.over = self.over or AlreadyClosed(_CLOSED)
        if owners := self._queue.owners:
            await asyncio.wait(owners, timeout=limits.OXIA_OPEN_S_MAX)
        self.drop()

    def drop(self, error: AnabranchError | None = None) -> None:
        """Let nobody wait any longer; it is over because of an error, or because it was closed."""
        self.over = self.over or error or AlreadyClosed(_CLOSED)
        self._lost(str(self.over))
        self._give_up(self.over)
        for replies in list(self._streams):
            replies.cancel()

    # --- single calls -------------------------------------------------------------------------

    async def ask(self, method: str, request: Any, answer: type[M]) -> M:
        """One request, one answer; `CallFailed` if there is none."""
        data = await self._channel.ask(
            SERVICE + method, request.SerializeToString(), timeout_s=limits.OXIA_CALL_S_MAX
        )
        return parse(answer, data)

    async def stream(self, method: str, request: Any, answer: type[M]) -> AsyncIterator[M]:
        """One request, many answers; `CallFailed` if they break off."""
        replies = self._channel.stream(SERVICE + method, request.SerializeToString())
        self._streams[replies] = None
        try:
            async for data in replies:
                yield parse(answer, data)
        finally:
            del self._streams[replies]
            replies.cancel()

    async def again(self, what: str, attempt: Callable[[], Any]) -> Any:
        """Try something that changes nothing until it works, but not for ever.

        Raises:
            Unreachable: if it never did.
        """
        delay_s = limits.METADATA_RECONNECT_DELAY_S_MIN
        last_error = "no answer"
        try:
            async with asyncio.timeout(limits.OXIA_CALL_S_MAX):
                while self.over is None:
                    try:
                        return await attempt()
                    except CallFailed as error:
                        last_error = str(error)
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, limits.METADATA_RECONNECT_DELAY_S_MAX)
        except TimeoutError:
            raise Unreachable(f"Oxia's shard {self.number}, {what}: {last_error}") from None
        raise self.over or AlreadyClosed(_CLOSED)

    # --- reading ------------------------------------------------------------------------------

    def get(self, request: pb.GetRequest) -> asyncio.Future[pb.GetResponse]:
        """Look a key up, together with whatever else is looked up in this turn of the loop."""
        future: asyncio.Future[pb.GetResponse] = self._loop.create_future()
        if self.over is not None:
            _settle(future, self.over)
            return future
        if not self._gets:
            self._loop.call_soon(self._send_gets)
        self._gets.append((request, future))
        return future

    def _send_gets(self) -> None:
        gets, self._gets = self._gets, []
        for start in range(0, len(gets), limits.OXIA_REQUEST_OPERATIONS_MAX):
            part = gets[start : start + limits.OXIA_REQUEST_OPERATIONS_MAX]
            if self._tasks.closed:
                self._abandon(part)
            else:
                reading = self._tasks.spawn("oxia-read", self._read(part))
                reading.add_done_callback(partial(self._abandon, part))

    def _abandon(self, part: Reads, _: object = None) -> None:
        for _, future in part:
            _settle(future, self.over or AlreadyClosed(_CLOSED))

    async def _read(self, part: Reads) -> None:
        request = pb.ReadRequest(shard=self.number, gets=[get for get, _ in part])

        async def attempt() -> list[pb.GetResponse]:
            found: list[pb.GetResponse] = []
            async with aclosing(self.stream("Read", request, pb.ReadResponse)) as answers:  # type: ignore[type-var]
                async for answer in answers:
                    found += answer.gets
            if len(found) != len(part):
                raise ProtocolError(f"{len(found)} answers to {len(part)} reads")
            return found

        try:
            found = await self.again("reading", attempt)
        except AnabranchError as error:
            for _, future in part:
                _settle(future, error)
            return
        for (_, future), answer in zip(part, found, strict=True):
            if not future.done():
                future.set_result(answer)

    def _range(
        self, keys: tuple[str, str], index: str | None = None, *, internal: bool = False
    ) -> pb.RangeRequest:
        return pb.RangeRequest(
            shard=self.number,
            start_inclusive=keys[0],
            end_exclusive=keys[1],
            secondary_index_name=index,
            include_internal_keys=internal,
        )

    async def key_stream(
        self, keys: tuple[str, str], *, internal: bool = False
    ) -> AsyncIterator[str]:
        """The keys in a range as of one moment; `CallFailed` if they break off."""
        request = self._range(keys, internal=internal)
        async with aclosing(self.stream("List", request, pb.ListResponse)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                for key in answer.keys:
                    yield key

    async def keys_in(self, keys: tuple[str, str], *, internal: bool = False) -> list[str]:
        """The keys in a range, all of them."""

        async def attempt() -> list[str]:
            return [key async for key in self.key_stream(keys, internal=internal)]

        found: list[str] = await self.again("listing", attempt)
        return found

    async def any_in(self, keys: tuple[str, str]) -> bool:
        """Whether there is any key in a range."""

        async def attempt() -> bool:
            async with aclosing(self.key_stream(keys)) as listed:  # type: ignore[type-var]
                async for _ in listed:
                    return True
            return False

        found: bool = await self.again("listing", attempt)
        return found

    async def page(self, keys: tuple[str, str]) -> tuple[list[pb.GetResponse], bool]:
        """The first records in a range, bounded in number and bytes, and whether that was all."""

        async def attempt() -> tuple[list[pb.GetResponse], bool]:
            found: list[pb.GetResponse] = []
            size_bytes = 0
            async with aclosing(self.records(keys)) as records:  # type: ignore[type-var]
                async for record in records:
                    if (
                        len(found) >= limits.METADATA_PAGE_NODES_MAX
                        or size_bytes >= limits.METADATA_PAGE_BYTES_MAX
                    ):
                        return found, False
                    found.append(record)
                    size_bytes += len(record.value)
            return found, True

        page: tuple[list[pb.GetResponse], bool] = await self.again("scanning", attempt)
        return page

    async def records(
        self, keys: tuple[str, str], index: str | None = None
    ) -> AsyncIterator[pb.GetResponse]:
        """The records in a range as of one moment; `CallFailed` if they break off."""
        request = self._range(keys, index)
        async with aclosing(self.stream("RangeScan", request, pb.RangeScanResponse)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                for record in answer.records:
                    yield record

    # --- writing ------------------------------------------------------------------------------

    def write(
        self, operation: WriteOperation | Whole, on_answer: OnAnswer | None = None
    ) -> asyncio.Future[Any]:
        """Send an operation, or puts made a request already, after those before it.

        The answer is the server's, or what `on_answer` makes of it, which is then to settle the
        future; `OutcomeUnknown` if it was sent and not answered, `Unreachable` if it was not sent.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.over is not None:
            _settle(future, self.over)
            return future
        if isinstance(operation, Whole):
            self._queue.add_whole(operation, future)
        else:
            self._queue.add(operation, future, on_answer)
        if not self._waking:
            # In the next turn, so that what is written together goes together.
            self._waking = True
            self._loop.call_soon(self._wake_up)
        return future

    def _wake_up(self) -> None:
        self._waking = False
        self._wake.set()

    async def _write_on(self) -> None:
        while True:
            await self._wake.wait()
            # A task of its own, so that it can be ended wherever it waits.
            self._writing = self._tasks.spawn(f"oxia-stream-{self.number}", self._write_stream())
            await asyncio.wait([self._writing])
            self._writing = None
            await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MIN)

    async def _write_stream(self) -> None:
        channel = self._channel
        try:
            async with asyncio.timeout(limits.OXIA_OPEN_S_MAX):
                await channel.ready()
        except TimeoutError:
            self._wake.clear()
            self._give_up(Unreachable(f"the leader of Oxia's shard {self.number} is away"))
            return
        headers = (("shard-id", str(self.number)), ("namespace", self._namespace))
        exchange = channel.exchange(SERVICE + "WriteStream", headers)
        reader = self._tasks.spawn(f"oxia-answers-{self.number}", self._read_answers(exchange))
        try:
            await self._send_on(exchange, reader)
        except TimeoutError:
            self._lost(f"nobody answered for {limits.OXIA_CALL_S_MAX} s")
        finally:
            await self._let_go(exchange, reader)

    async def _let_go(self, exchange: Exchange, reader: asyncio.Task[Any]) -> None:
        """End a stream whole: who still hears of it would take its end for that of the next one."""
        exchange.cancel()
        reader.cancel()
        try:
            await asyncio.wait([reader])
        finally:
            self._lost("the stream of writes broke")

    async def _send_on(self, exchange: Exchange, reader: asyncio.Task[Any]) -> None:
        while not reader.done():
            self._wake.clear()
            if not self._queue.under_way:
                self._heard_s = self._loop.time()
            while (request := self._queue.take()) is not None:
                try:
                    async with self._patience():
                        await exchange.send(request.SerializeToString())
                except CallFailed:
                    return
            async with self._patience():
                await self._wake.wait()

    def _patience(self) -> asyncio.Timeout:
        """A server that answers pings may still have lost those who store what it is sent."""
        until_s = self._heard_s + limits.OXIA_CALL_S_MAX
        return asyncio.timeout_at(until_s if self._queue.under_way else None)

    async def _read_answers(self, exchange: Exchange) -> None:
        try:
            async for data in exchange:
                self._heard_s = self._loop.time()
                for item, answer in self._queue.answered(parse(pb.WriteResponse, data)):
                    future = item.owner
                    if future.done():
                        continue
                    if item.on_answer is None:
                        future.set_result(answer)
                    else:
                        item.on_answer(future, item.key, answer)
                self._wake.set()
        except (CallFailed, ProtocolError) as error:
            self._lost(str(error))
        finally:
            self._loop.call_soon(self._wake.set)

    def _lost(self, reason: str) -> None:
        for future in self._queue.lost():
            _settle(future, OutcomeUnknown(f"a write to Oxia's shard {self.number}: {reason}"))

    def _give_up(self, error: AnabranchError) -> None:
        for future in self._queue.drop():
            _settle(future, error)
