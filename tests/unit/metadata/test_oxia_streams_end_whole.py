"""What is left of a stream of writes that broke has no say in those of the next one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch import limits
from anabranch.errors import OutcomeUnknown
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.runtime.channels import CallFailed, Headers
from anabranch.runtime.tasks import Tasks

LATE_S = 5 * limits.METADATA_RECONNECT_DELAY_S_MIN


class Stream:
    """A stream of writes that is answered when the test says so, and hears late of its end."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[pb.WriteRequest] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: bytes) -> None:
        self.sent.put_nowait(pb.WriteRequest.FromString(message))

    def answer(self, request: pb.WriteRequest) -> None:
        """Answer a request, and give each put its number in the key as version."""
        puts = [pb.PutResponse(version=pb.Version(version_id=int(p.key))) for p in request.puts]
        self._answers.put_nowait(pb.WriteResponse(puts=puts).SerializeToString())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (answer := await self._answers.get()) is not None:
            yield answer
        raise CallFailed("CANCELLED", "the call was ended here")

    def cancel(self) -> None:
        asyncio.get_running_loop().call_later(LATE_S, self._answers.put_nowait, None)


class StreamChannel:
    """A server whose streams can be looked at."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()

    async def ready(self) -> None:
        """At once."""

    def exchange(self, method: str, headers: Headers) -> Stream:
        del method, headers
        stream = Stream()
        self.streams.put_nowait(stream)
        return stream


def put(number: int) -> pb.PutRequest:
    return pb.PutRequest(key=str(number))


@pytest.mark.goal("core.M2", part="oxia", broken_by="oxia_broken_streams_are_listened_to")
@pytest.mark.timeout(30)
async def test_writes_get_their_own_answers_after_a_stream_broke() -> None:
    failures: list[tuple[str, BaseException]] = []
    tasks = Tasks(lambda name, failure: failures.append((name, failure)))
    channel = StreamChannel()
    link = ShardLink(0, "default", channel, tasks)  # type: ignore[arg-type]
    try:
        lost = link.write(put(1))
        await (await channel.streams.get()).sent.get()
        link.moved(channel)  # type: ignore[arg-type]
        with pytest.raises(OutcomeUnknown):
            await lost
        first = link.write(put(2))
        stream = await channel.streams.get()
        sent = await stream.sent.get()
        await asyncio.sleep(2 * LATE_S)
        second = link.write(put(3))
        sent_second = await stream.sent.get()
        stream.answer(sent)
        assert (await first).version.version_id == 2
        stream.answer(sent_second)
        assert (await second).version.version_id == 3
        assert failures == []
    finally:
        link.drop()
        await tasks.close()
