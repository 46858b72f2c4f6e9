"""One client process of a workload: a producer or a consumer on the PyPI `pulsar-client`.

Started by `workload.py` as `python -m anabranch.verify.workload_client`. The first line on standard
input is its task as JSON; later lines are `go` and `stop`, and the end of the input means `stop`
too, so that it never outlives its coordinator. It answers with JSON lines on standard output.

The re-send policy: a sequence number is handed to the library once. The library sends again by
itself after a lost connection; when it gives up, the outcome is unknown and the producer moves on.
"""

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pulsar

from anabranch.errors import Corruption, FormatError
from anabranch.verify import payload
from anabranch.verify.history import Header, HistoryWriter
from anabranch.verify.records import (
    CONNECTION_LOST,
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    Ack,
    AckKind,
    Damaged,
    Delivery,
    Event,
    MessageId,
    Outcome,
    Place,
    Sent,
    Subscribed,
    SubscriptionType,
)
from anabranch.verify.workload_messages import BURST_MAX, OUTSTANDING_MAX, MessageMaker, say

_TICK_S: Final = 0.005
_PROGRESS_S: Final = 0.2
_CONNECTION_POLL_S: Final = 0.01
_RECEIVE_MAX: Final = 200

# The library reports these before anything leaves the process. Every other error may follow an
# attempt that the broker stored, because the library sends again by itself.
_CERTAIN_FAILURES: Final = frozenset(
    {
        pulsar.Result.MessageTooBig,
        pulsar.Result.InvalidMessage,
        pulsar.Result.ProducerQueueIsFull,
        pulsar.Result.MemoryBufferIsFull,
    }
)
_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: pulsar.ConsumerType.Exclusive,
    SubscriptionType.SHARED: pulsar.ConsumerType.Shared,
    SubscriptionType.FAILOVER: pulsar.ConsumerType.Failover,
    SubscriptionType.KEY_SHARED: pulsar.ConsumerType.KeyShared,
}


class Commands:
    """What the coordinator says on standard input."""

    def __init__(self) -> None:
        self._buffer = b""
        self._ended = False
        self.seen: set[str] = set()

    def first(self) -> dict[str, Any]:
        """Wait for the first line: the task."""
        while b"\n" not in self._buffer and not self._ended:
            self._read(None)
        line, _, self._buffer = self._buffer.partition(b"\n")
        task: dict[str, Any] = json.loads(line)
        return task

    def wait(self, timeout_s: float) -> None:
        """Sleep, but wake up when the coordinator says something."""
        self._read(timeout_s)
        *lines, self._buffer = self._buffer.split(b"\n")
        self.seen.update(line.decode() for line in lines)

    def _read(self, timeout_s: float | None) -> None:
        if self._ended:
            time.sleep(timeout_s or 0)
        elif select.select([0], [], [], timeout_s)[0]:
            data = os.read(0, 65536)
            self._ended = not data
            self._buffer += data
            if self._ended:
                self.seen.add("stop")

    @property
    def must_stop(self) -> bool:
        """Whether the coordinator said stop, or is gone."""
        return "stop" in self.seen


class ConnectionWatch(threading.Thread):
    """Notes in the history when the connection is lost and when it is back."""

    def __init__(self, is_connected: Callable[[], bool], note: Callable[[bool], None]) -> None:
        super().__init__(daemon=True)
        self._is_connected = is_connected
        self._note = note
        self._ended = threading.Event()

    def run(self) -> None:
        """Poll faster than the library's shortest pause before it connects again (100 ms)."""
        was_connected = True
        while not self._ended.wait(_CONNECTION_POLL_S):
            is_connected = self._is_connected()
            if is_connected != was_connected:
                self._note(is_connected)
            was_connected = is_connected

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()
        self.join()


class Producer:
    """Sends numbered messages at a steady rate and records what became of each."""

    def __init__(self, task: dict[str, Any], client: Any, history: HistoryWriter) -> None:
        self._task = task
        self._history = history
        self._number: int = task["producer"]
        self._epoch: int = task["epoch"]
        self._maker = MessageMaker(task, history)
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(Outcome, 0)
        profile = task["profile"]
        self._is_sync: bool = profile["sync"]
        self._producer = client.create_producer(
            task["topic"],
            producer_name=f"verify-{task['run']}-{self._number}",
            send_timeout_millis=int(task["send_timeout_s"] * 1000),
            compression_type=getattr(pulsar.CompressionType, profile["compression"]),
            max_pending_messages=2 * OUTSTANDING_MAX,
            batching_enabled=profile["batching"],
        )

    def run(self, commands: Commands) -> None:
        """Send from `go` until `stop`, then wait for the outcomes that are still open."""
        watch = ConnectionWatch(self._producer.is_connected, self._note_connection)
        watch.start()
        started, told = time.monotonic(), 0.0
        while not commands.must_stop:
            commands.wait(_TICK_S)
            due = int((time.monotonic() - started) * self._task["rate"]) - self._maker.made
            room = OUTSTANDING_MAX - self._outstanding()
            if (count := min(due, room, 1 if self._is_sync else BURST_MAX)) > 0:
                self._send(list(self._maker.make(count)))
            self._history.flush()
            if time.monotonic() - told > _PROGRESS_S:
                told = time.monotonic()
                say(progress=self.counts)
        deadline = time.monotonic() + self._task["send_timeout_s"] + 5
        while self._outstanding() and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        watch.end()
        say(progress=self.counts)
        self._producer.close()

    def _outstanding(self) -> int:
        with self._lock:
            return self._maker.made - sum(self.counts.values())

    def _send(self, group: list[tuple[int, str, bytes]]) -> None:
        # Flushed first: whatever may be delivered must be on record as sent.
        self._history.flush()
        for seq, key, content in group:
            if not self._is_sync:
                done = partial(self._done, seq)
                self._producer.send_async(content, done, partition_key=key, sequence_id=seq)
                continue
            try:
                place = self._producer.send(content, partition_key=key, sequence_id=seq)
            except pulsar.PulsarException as error:
                self._done(seq, getattr(pulsar.Result, type(error).__name__, None), None)
            else:
                self._done(seq, pulsar.Result.Ok, place)

    def _done(self, seq: int, result: Any, message_id: Any) -> None:
        if result == pulsar.Result.Ok:
            # A broker that knows a message already does not say where it is.
            known = message_id.entry_id() >= 0
            outcome, place, error = Outcome.OK, place_of(message_id) if known else None, ""
        else:
            outcome = Outcome.FAIL if result in _CERTAIN_FAILURES else Outcome.UNKNOWN
            place, error = None, str(result)
        self._history.append(Sent(self._number, self._epoch, seq, outcome, place, error))
        with self._lock:
            self.counts[outcome] += 1

    def _note_connection(self, is_connected: bool) -> None:
        name = CONNECTION_RESTORED if is_connected else CONNECTION_LOST
        self._history.append(Event(name, self._task["name"], self._number))


class Consumer:
    """Receives, records, acknowledges: in this order, each only after the one before."""

    def __init__(self, task: dict[str, Any], client: Any, history: HistoryWriter) -> None:
        self._task = task
        self._history = history
        self._ack_kind = AckKind(task["ack"])
        self._delivered = 0
        kind = SubscriptionType(task["type"])
        self._consumer = client.subscribe(
            task["topic"],
            task["sub"],
            consumer_type=_TYPES[kind],
            consumer_name=task["name"],
            initial_position=pulsar.InitialPosition.Latest,
            batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(_RECEIVE_MAX, -1, 50),
        )
        history.append(Subscribed(task["sub"], task["name"], kind))
        history.flush()

    def run(self, commands: Commands) -> None:
        """Receive until `stop`."""
        watch = ConnectionWatch(self._consumer.is_connected, self._note_connection)
        watch.start()
        told = 0.0
        while not commands.must_stop:
            commands.wait(0)
            if messages := self._consumer.batch_receive():
                for message in messages:
                    self._record(message)
                # Flushed first: what is acknowledged never comes again.
                self._history.flush()
                self._acknowledge(messages)
            self._history.flush()
            if time.monotonic() - told > _PROGRESS_S:
                told = time.monotonic()
                say(progress={"delivered": self._delivered})
        watch.end()
        say(progress={"delivered": self._delivered})
        self._consumer.close()

    def _record(self, message: Any) -> None:
        sub, name = self._task["sub"], self._task["name"]
        place = place_of(message.message_id())
        self._delivered += 1
        try:
            found = payload.parse(message.data())
        except (Corruption, FormatError) as error:
            self._history.append(Damaged(sub, name, place, str(error)))
            return
        if found.run != self._task["run"]:
            self._history.append(Damaged(sub, name, place, f"it is of run {found.run}"))
            return
        if message.partition_key() != found.key:
            wrong = f"its key is {message.partition_key()!r}, that of its payload {found.key!r}"
            self._history.append(Damaged(sub, name, place, wrong))
            return
        identity = MessageId(found.producer, found.epoch, found.seq)
        self._history.append(Delivery(sub, name, *identity, found.key, found.checksum, place))

    def _acknowledge(self, messages: list[Any]) -> None:
        try:
            if self._ack_kind is AckKind.CUMULATIVE:
                self._consumer.acknowledge_cumulative(messages[-1])
            else:
                for message in messages:
                    self._consumer.acknowledge(message)
        except pulsar.PulsarException as error:
            # Without its acknowledgement the message comes again.
            self._history.append(Event("ack-not-sent", f"{self._task['name']}: {error}"))
            return
        # The library does not wait for the broker's answer, so nobody knows whether it arrived.
        named = messages[-1:] if self._ack_kind is AckKind.CUMULATIVE else messages
        places = tuple(place_of(message.message_id()) for message in named)
        sub, name = self._task["sub"], self._task["name"]
        self._history.append(Ack(sub, name, self._ack_kind, Outcome.UNKNOWN, places))

    def _note_connection(self, is_connected: bool) -> None:
        name = CONNECTION_RESTORED if is_connected else CONSUMER_CONNECTION_LOST
        self._history.append(Event(name, self._task["name"], sub=self._task["sub"]))


def place_of(message_id: Any) -> Place:
    """Return the library's message id as a place."""
    return Place(
        message_id.partition(),
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.batch_index(),
    )


def main() -> int:
    """Do the task on standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides when to stop
    commands = Commands()
    task = commands.first()
    client = pulsar.Client(
        task["url"],
        operation_timeout_seconds=int(task["connect_s"]),
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, task["log"]),
    )
    history = HistoryWriter(
        Path(task["history"]), Header(**task["header"], client=task["name"]), time.monotonic
    )
    role = Producer if task["role"] == "producer" else Consumer
    try:
        try:
            worker = role(task, client, history)
        except pulsar.PulsarException as error:
            say(error=f"{task['role']} {task['name']} cannot connect to {task['url']}: {error}")
            return 1
        say(ready=True)
        while not commands.seen:
            commands.wait(1.0)
        worker.run(commands)
    finally:
        client.close()  # first: it reports the sends that are still open
        history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
