"""Ctrl-C ends `produce`, and what was taken until then is still sent and answered."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.cli.interrupts import Interrupts
from anabranch.cli.message_session import send_all
from anabranch.cli.message_summaries import INTERRUPTED
from anabranch.client import MessageId
from anabranch.errors import InputError, OutcomeUnknown


class GatheringProducer:
    """Keeps messages until it is flushed."""

    def __init__(self) -> None:
        self.gathered: list[asyncio.Future[MessageId]] = []
        self.closed = False

    async def send_soon(self, _value: bytes, **_: Any) -> asyncio.Future[MessageId]:
        self.gathered.append(asyncio.get_running_loop().create_future())
        return self.gathered[-1]

    async def flush(self) -> None:
        for answer in self.gathered:
            answer.set_result(MessageId(1, 1))

    async def close(self) -> None:
        self.closed = True


class SilentServer(GatheringProducer):
    """Nothing that is sent to it is answered."""

    async def flush(self) -> None:
        for number, answer in enumerate(self.gathered):
            answer.set_exception(OutcomeUnknown(f"no answer to message {number}"))


async def interrupted_input() -> AsyncIterator[list[bytes]]:
    yield [b"first"]
    yield [b"second"]
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


async def three_at_once() -> AsyncIterator[list[bytes]]:
    yield [b"first", b"second", b"third"]


async def sent(producer: Any, payloads: AsyncIterator[list[bytes]]) -> Any:
    with Interrupts() as interrupts:
        return await send_all("t", producer, payloads, interrupts, key=None, rate=None)


async def test_what_was_taken_is_sent() -> None:
    producer = GatheringProducer()
    summary = await sent(producer, interrupted_input())
    assert (summary.sent, summary.acknowledged) == (2, 2)
    assert producer.closed
    assert summary.exit_code == INTERRUPTED


async def test_many_messages_without_an_answer_are_one_word() -> None:
    summary = await sent(SilentServer(), three_at_once())
    assert (summary.sent, summary.acknowledged, summary.exit_code) == (3, 0, 1)
    assert summary.as_text() == "published 0 of 3 messages to t; not acknowledged: OutcomeUnknown"


class Narrow(GatheringProducer):
    """Takes no messages of more than five bytes."""

    async def send_soon(self, value: bytes, **about: Any) -> asyncio.Future[MessageId]:
        if len(value) > 5:
            raise InputError(f"a message of {len(value)} bytes is too large")
        return await super().send_soon(value, **about)


async def test_what_is_too_large_does_not_keep_the_rest_from_being_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = await sent(Narrow(), three_at_once())
    assert (summary.sent, summary.acknowledged, summary.exit_code) == (3, 2, 1)
    assert summary.failures == {"InputError"}
    assert "message 2 was not sent: a message of 6 bytes is too large" in capsys.readouterr().err


async def test_the_second_interrupt_is_not_held_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert await interrupts.or_else(asyncio.Event().wait()) is None
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert callable(before)
