"""One use of the Pulsar client from the terminal, with errors that say what to do.

Imported by commands only when they run: the client library takes a while to load.
"""

import base64
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final, NamedTuple

import pulsar

from anabranch.cli.progress import Progress
from anabranch.cli.reach import require_listener
from anabranch.cli.start_position import FromEnd, FromMessage, FromTime, StartPosition
from anabranch.errors import InputError, Unreachable

INTERRUPTED: Final = 130
"""Exit code of a command that was ended by Ctrl-C before it was done, as shells have it."""
_RECEIVE_SLICE_MS: Final = 200
"""How long one receive call may block, so that Ctrl-C is noticed soon."""
_COMPRESSIONS: Final = {
    "NONE": pulsar.CompressionType.NONE,
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLIB": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}
_CONSUMER_TYPES: Final = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key_shared": pulsar.ConsumerType.KeyShared,
}


@dataclass(slots=True)
class Published:
    """What became of the messages of one `produce`."""

    topic: str
    sent: int = 0
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 only if everything was acknowledged and nothing was cut short."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if self.acknowledged == self.sent else 1

    def as_json(self) -> dict[str, Any]:
        """Return the summary for machines."""
        return {
            "topic": self.topic,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "failures": sorted(set(self.failures)),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the summary for people."""
        text = f"published {self.acknowledged} of {self.sent} messages to {self.topic}"
        if self.failures:
            text += f"; not acknowledged: {', '.join(sorted(set(self.failures)))}"
        return text


@dataclass(slots=True)
class Received:
    """What came out of one `consume`."""

    topic: str
    wanted: int | None
    count: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 if everything wanted came, or if it was to go on until Ctrl-C."""
        if self.wanted is None or self.count == self.wanted:
            return 0
        return INTERRUPTED if self.interrupted else 1

    def as_text(self) -> str:
        """Return the summary for people."""
        return f"received {self.count} of {self.wanted} messages from {self.topic}"


class Wanted(NamedTuple):
    """What a `consume` is to print."""

    number: int | None
    """How many messages; None: until Ctrl-C."""
    as_json: bool
    idle_s: float | None
    """How long to wait for the next one; None: for ever."""


class PulsarSession:
    """A client for the length of one command."""

    def __init__(self, url: str, *, timeout_s: float = 30.0, verbose: bool = False) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._verbose = verbose
        require_listener(url)
        self._client = pulsar.Client(
            url,
            operation_timeout_seconds=max(1, round(timeout_s)),
            logger=_library_logger() if verbose else _silence(),
        )

    def __enter__(self) -> "PulsarSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Not close(): it waits for the server, which may be what has gone.
        self._client.shutdown()

    def publish(
        self,
        topic: str,
        payloads: Iterable[bytes],
        *,
        key: str | None,
        compression: str,
        batching: bool,
        rate: float | None,
    ) -> Published:
        """Send every payload and wait for the answers.

        Raises:
            InputError: if the server refuses the producer.
            Unreachable: if it does not answer.
        """
        with self._explained(f"publish to {topic}"):
            producer = self._client.create_producer(
                topic,
                compression_type=_COMPRESSIONS[compression],
                batching_enabled=batching,
                block_if_queue_full=True,
                send_timeout_millis=round(self._timeout_s * 1000),
            )
        summary = Published(topic)
        progress = Progress(sys.stderr)

        def answered(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                summary.acknowledged += 1
            else:
                summary.failures.append(str(result).removeprefix("Result."))

        try:
            for payload in _paced(payloads, rate):
                summary.sent += 1
                producer.send_async(payload, answered, partition_key=key)
                progress.tell(summary.sent, summary.acknowledged)
        except (KeyboardInterrupt, pulsar.Interrupted):
            summary.interrupted = True  # and yet what was taken is sent; a second one cuts that
        except pulsar.PulsarException as error:
            summary.failures.append(_words(error))
        try:
            producer.flush()
            producer.close()
        except (KeyboardInterrupt, pulsar.Interrupted):
            summary.interrupted = True
        except pulsar.PulsarException as error:
            summary.failures.append(_words(error))
        summary.seconds = progress.seconds
        progress.end()
        return summary

    def receive(
        self,
        topic: str,
        subscription: str,
        wanted: Wanted,
        *,
        consumer_type: str,
        earliest: bool,
        acknowledge: bool,
    ) -> Received:
        """Print messages of a subscription.

        Raises:
            InputError: if the server refuses the subscription.
            Unreachable: if it does not answer.
        """
        position = pulsar.InitialPosition.Earliest if earliest else pulsar.InitialPosition.Latest
        with self._explained(f"subscribe {subscription!r} to {topic}"):
            consumer = self._client.subscribe(
                topic,
                subscription,
                consumer_type=_CONSUMER_TYPES[consumer_type],
                initial_position=position,
                # Else what was taken of a batch comes again with the rest of it.
                batch_index_ack_enabled=True,
            )
        done = consumer.acknowledge if acknowledge else None
        # Closing sends the acknowledgements that are still gathered.
        return _print_messages(topic, consumer.receive, wanted, done=done, close=consumer.close)

    def read(self, topic: str, start: StartPosition, wanted: Wanted) -> Received:
        """Print messages without a subscription.

        Raises:
            InputError: if the server refuses the reader.
            Unreachable: if it does not answer.
        """
        place = pulsar.MessageId.earliest
        if isinstance(start, FromMessage):
            place = pulsar.MessageId(-1, start.ledger_id, start.entry_id, start.batch_index)
        elif isinstance(start, FromEnd) and not start.earliest:
            place = pulsar.MessageId.latest
        with self._explained(f"read {topic}"):
            inclusive = isinstance(start, FromMessage)
            reader = self._client.create_reader(topic, place, start_message_id_inclusive=inclusive)
            if isinstance(start, FromTime):
                reader.seek(start.time_ms)
        return _print_messages(topic, reader.read_next, wanted, done=None, close=reader.close)

    @contextmanager
    def _explained(self, attempt: str) -> Iterator[None]:
        try:
            yield
        except (pulsar.Timeout, pulsar.ConnectError) as error:
            raise Unreachable(
                f"cannot {attempt}: {self._url} did not answer within {self._timeout_s:g} s"
            ) from error
        except pulsar.InvalidTopicName as error:
            raise InputError(
                f"cannot {attempt}: a topic is named like my-topic or"
                " persistent://public/default/my-topic"
            ) from error
        except pulsar.PulsarException as error:
            # The library keeps the server's reason for its log.
            hint = "" if self._verbose else "; --verbose shows why"
            raise InputError(f"cannot {attempt}: the server says {_words(error)}{hint}") from error


def _print_messages(
    topic: str,
    take: Callable[[int], Any],
    wanted: Wanted,
    *,
    done: Callable[[Any], None] | None,
    close: Callable[[], None],
) -> Received:
    """Take messages and print them until there are as many as wanted, or none comes for long."""
    summary = Received(topic, wanted.number)
    last_s = time.monotonic()
    with _interruptible() as interrupted:
        while summary.count != wanted.number and not interrupted():
            try:
                message = take(_RECEIVE_SLICE_MS)
            except pulsar.Timeout:
                if wanted.idle_s is not None and time.monotonic() - last_s > wanted.idle_s:
                    break
                continue
            line = _as_json(message).encode() if wanted.as_json else message.data()
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
            if done is not None:
                done(message)
            summary.count += 1
            last_s = time.monotonic()
        summary.interrupted = interrupted()
        close()
    return summary


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising, so that what was printed is acknowledged too.

    The second one raises as usual.
    """
    asked: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _words(error: pulsar.PulsarException) -> str:
    return str(error).removeprefix("Pulsar error: ")


def _silence() -> Any:
    return pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)


def _library_logger() -> logging.Logger:
    logger = logging.getLogger("pulsar")
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.setLevel(logging.INFO)
    return logger


def _paced(payloads: Iterable[bytes], rate: float | None) -> Iterator[bytes]:
    due_s = time.monotonic()
    for payload in payloads:
        if rate is not None:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s += 1 / rate
        yield payload


def _as_json(message: Any) -> str:
    position = message.message_id()
    payload: bytes = message.data()
    document = {
        "topic": message.topic_name(),
        "ledger_id": position.ledger_id(),
        "entry_id": position.entry_id(),
        "batch_index": position.batch_index(),
        "key": message.partition_key() or None,
        "properties": message.properties(),
        "publish_time_ms": message.publish_timestamp(),
        "redelivery_count": message.redelivery_count(),
    }
    try:
        document["payload"] = payload.decode()
    except UnicodeDecodeError:
        document["payload_base64"] = base64.b64encode(payload).decode()
    return json.dumps(document, ensure_ascii=False)
