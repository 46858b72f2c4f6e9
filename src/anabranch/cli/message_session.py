"""One use of our own client from the terminal, with errors that say what to do.

Imported by commands only when they run: the client takes a while to load.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final

from anabranch.cli.access import Access
from anabranch.cli.interrupts import Interrupts
from anabranch.cli.message_summaries import Published, Received, Wanted, line_of
from anabranch.cli.metadata_places import safe
from anabranch.cli.progress import Progress
from anabranch.cli.reach import require_listener
from anabranch.cli.start_position import FromEnd, FromMessage, FromTime, StartPosition
from anabranch.client import (
    Batching,
    BrokerRefused,
    Client,
    Compression,
    Message,
    MessageId,
    Producer,
    SubscriptionType,
)
from anabranch.errors import AnabranchError, InputError, InvalidName, OutcomeUnknown, Unreachable
from anabranch.generated.pulsar_api_pb2 import ServerError
from anabranch.telemetry import get_logger
from anabranch.telemetry.logs import configure

_TAKEN_AT_ONCE: Final = 100
_log = get_logger("cli")


class MessageSession:
    """A client for the length of one command."""

    def __init__(
        self, url: str, who: Access, *, timeout_s: float = 30.0, verbose: bool = False
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        require_listener(url)
        if verbose:
            configure(level="debug", style="text", stream=sys.stderr)
        self._verbose = verbose
        self._disabled_before = logging.root.manager.disable
        self._client = Client(
            url, credentials=who.credentials, tls=who.tls, open_timeout_s=timeout_s
        )

    async def __aenter__(self) -> "MessageSession":
        if not self._verbose:
            logging.disable(logging.CRITICAL)  # what matters is said by the command itself
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()
        if not self._verbose:
            logging.disable(self._disabled_before)

    async def publish(
        self,
        topic: str,
        payloads: AsyncIterator[Sequence[bytes]],
        *,
        key: str | None,
        compression: Compression,
        batching: bool,
        rate: float | None,
    ) -> Published:
        """Send every payload and wait for the answers.

        Raises:
            InputError: if the server refuses the producer.
            Unreachable: if it does not answer.
        """
        with self._explained(f"publish to {topic}"):
            producer = await self._client.producer(
                topic,
                compression=compression,
                batching=Batching() if batching else None,
                send_timeout_s=self._timeout_s,
            )
        _log.info("producer_opened", topic=str(producer.topic), producer=producer.name)
        with Interrupts() as interrupts:
            return await send_all(topic, producer, payloads, interrupts, key=key, rate=rate)

    async def receive(
        self,
        topic: str,
        subscription: str,
        wanted: Wanted,
        *,
        subscription_type: SubscriptionType,
        earliest: bool,
        acknowledge: bool,
    ) -> Received:
        """Print messages of a subscription.

        Raises:
            InputError: if the server refuses the subscription.
            Unreachable: if it does not answer.
        """
        with self._explained(f"subscribe {subscription!r} to {topic}"):
            consumer = await self._client.consumer(
                topic,
                subscription,
                subscription_type=subscription_type,
                initial_position="earliest" if earliest else "latest",
            )
        _log.info("consumer_opened", topic=topic, consumer=consumer.name)
        done = consumer.acknowledge if acknowledge else None
        return await _print_messages(topic, consumer.receive_many, wanted, done=done)

    async def read(self, topic: str, start: StartPosition, wanted: Wanted) -> Received:
        """Print messages without a subscription.

        Raises:
            InputError: if the server refuses the reader.
            Unreachable: if it does not answer.
        """
        with self._explained(f"read {topic}"):
            if isinstance(start, FromMessage):
                place = MessageId(start.ledger_id, start.entry_id, batch_index=start.batch_index)
                reader = await self._client.reader(topic, start=place, inclusive=True)
            else:
                latest = isinstance(start, FromEnd) and not start.earliest
                reader = await self._client.reader(topic, start="latest" if latest else "earliest")
            if isinstance(start, FromTime):
                await reader.seek(start.time_ms)
        _log.info("reader_opened", topic=topic)

        async def take(_: int) -> list[Message]:
            return [await reader.read_next()]

        return await _print_messages(topic, take, wanted, done=None)

    @contextmanager
    def _explained(self, attempt: str) -> Iterator[None]:
        try:
            yield
        except (Unreachable, OutcomeUnknown) as error:
            raise Unreachable(
                f"cannot {attempt}: {self._url} did not answer within {self._timeout_s:g} s"
            ) from error
        except InvalidName as error:
            raise InputError(
                f"cannot {attempt}: a topic is named like my-topic or"
                " persistent://public/default/my-topic"
            ) from error
        except BrokerRefused as error:
            raise InputError(f"cannot {attempt}: the server says {safe(str(error))}") from error


async def send_all(
    topic: str,
    producer: Producer,
    payloads: AsyncIterator[Sequence[bytes]],
    interrupts: Interrupts,
    *,
    key: str | None,
    rate: float | None,
) -> Published:
    """Send what comes until Ctrl-C, and wait for the answers to all that was taken."""
    summary = Published(topic)
    progress = Progress(sys.stderr)
    try:
        async for payload in _paced(payloads, interrupts, rate):
            summary.sent += 1
            try:
                answer = await producer.send_soon(payload, key=key)
            except InputError as error:  # of this message alone, such as its size
                summary.failures.add(type(error).__name__)
                print(f"message {summary.sent} was not sent: {safe(str(error))}", file=sys.stderr)
                continue
            answer.add_done_callback(partial(_note, summary))
            progress.tell(summary.sent, summary.acknowledged)
        await producer.flush()
        await producer.close()
    except AnabranchError as error:
        summary.failures.add(_words(error))
    await asyncio.sleep(0)  # the last answers are noted
    summary.interrupted = interrupts.asked
    summary.seconds = progress.seconds
    progress.end()
    return summary


async def _paced(
    payloads: AsyncIterator[Sequence[bytes]], interrupts: Interrupts, rate: float | None
) -> AsyncIterator[bytes]:
    due_s = time.monotonic()
    while group := await interrupts.or_else(_next_of(payloads)):
        for payload in group:
            if rate is not None:
                await interrupts.rest(max(0.0, due_s - time.monotonic()))
                due_s += 1 / rate
            if interrupts.asked:
                return
            yield payload


async def _next_of(payloads: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
    async for group in payloads:
        return group
    return ()


def _note(summary: Published, answer: "asyncio.Future[MessageId]") -> None:
    error = answer.exception()
    if error is None:
        summary.acknowledged += 1
    else:
        summary.failures.add(_words(error))


def _words(error: BaseException) -> str:
    if isinstance(error, BrokerRefused):
        return ServerError.Name(error.code)
    # The sentences of these name the message: one for each would be too many.
    if isinstance(error, OutcomeUnknown | Unreachable):
        return type(error).__name__
    return safe(str(error))


async def _print_messages(
    topic: str,
    take: Callable[[int], Awaitable[list[Message]]],
    wanted: Wanted,
    *,
    done: Callable[[Message], Awaitable[None]] | None,
) -> Received:
    """Take messages and print them until there are as many as wanted, or none comes for long."""
    summary = Received(topic, wanted.number)

    async def taken() -> list[Message]:
        missing = summary.missing
        return await take(_TAKEN_AT_ONCE if missing is None else min(missing, _TAKEN_AT_ONCE))

    with Interrupts() as interrupts:
        while summary.missing != 0 and not interrupts.asked:
            messages = await interrupts.or_else(taken(), timeout_s=wanted.idle_s)
            if messages is None:
                break
            for message in messages:
                sys.stdout.buffer.write(line_of(message, as_json=wanted.as_json) + b"\n")
                sys.stdout.buffer.flush()
                if done is not None:
                    await done(message)
                summary.count += 1
        summary.interrupted = interrupts.asked
    return summary
