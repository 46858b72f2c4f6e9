"""One client process of a workload on the SDK: acknowledgements have answers, cursors are asked.

Started and told like `workload_client`, and leaves the same histories. A sequence number is handed
to the SDK once; the SDK sends again by itself after a lost connection.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch.client import Batching, BrokerRefused, Client, MessageId
from anabranch.client import Producer as SdkProducer
from anabranch.errors import AnabranchError, InputError, Unreachable
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.verify.history import Header, HistoryWriter
from anabranch.verify.recording_consumer import RecordingConsumer, place_of
from anabranch.verify.records import (
    CONNECTION_LOST,
    AckKind,
    Event,
    Outcome,
    Sent,
    Subscribed,
    SubscriptionType,
)
from anabranch.verify.spoiled_sends import SpoiledSender
from anabranch.verify.workload_messages import BURST_MAX, OUTSTANDING_MAX, MessageMaker, say

_TICK_S: Final = 0.005
_PROGRESS_S: Final = 0.2
_RECEIVE_MAX: Final = 200
_RECEIVE_WAIT_S: Final = 0.05
_SNAPSHOT_S: Final = 0.25
_SPOILED_S: Final = 1.0
_COMPRESSIONS: Final = {"NONE": "none", "LZ4": "lz4", "ZSTD": "zstd"}


class Commands:
    """What the coordinator says on standard input."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.began = asyncio.Event()
        self.stop = asyncio.Event()

    @classmethod
    async def open(cls) -> "Commands":
        """Listen to standard input."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        return cls(reader)

    async def first(self) -> dict[str, Any]:
        """Return the task."""
        task: dict[str, Any] = json.loads(await self._reader.readline())
        return task

    async def listen(self) -> None:
        """Take in what is said until the end of the input, which means stop too."""
        while (line := await self._reader.readline()) and line.strip() != b"stop":
            self.began.set()
        self.began.set()
        self.stop.set()


class Producer:
    """Sends numbered messages at a steady rate and records what became of each."""

    def __init__(
        self, task: dict[str, Any], client: Client, producer: SdkProducer, history: HistoryWriter
    ) -> None:
        self._task = task
        self._history = history
        self._producer = producer
        self._maker = MessageMaker(task, history)
        self._spoiled = SpoiledSender(task, client, history)
        self._attachments = producer.attachments
        self._answered = 0
        self.counts = dict.fromkeys(Outcome, 0)

    @classmethod
    async def open(cls, task: dict[str, Any], client: Client, history: HistoryWriter) -> "Producer":
        """Open the producer."""
        profile = task["profile"]
        producer = await client.producer(
            task["topic"],
            name=f"verify-{task['run']}-{task['producer']}",
            batching=Batching() if profile["batching"] else None,
            compression=_COMPRESSIONS[profile["compression"]],  # type: ignore[arg-type]
            send_timeout_s=task["send_timeout_s"],
        )
        return cls(task, client, producer, history)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop, then wait for the outcomes that are still open."""
        started, told, spoiled = time.monotonic(), 0.0, 0.0
        while not stop.is_set():
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            due = int((now - started) * self._task["rate"]) - self._maker.made
            await self._send(min(due, OUTSTANDING_MAX - self._outstanding(), BURST_MAX))
            if now - spoiled > _SPOILED_S:
                spoiled = now
                await self._spoiled.send_one()
            self._note_connection()
            self._history.flush()
            if now - told > _PROGRESS_S:
                told = now
                self._tell()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._task["send_timeout_s"] + 5):
                await self._producer.flush()
        await self._producer.close()
        self._tell()

    def _tell(self) -> None:
        both = {how: self.counts[how] + self._spoiled.counts[how] for how in Outcome}
        say(progress=both)

    def _outstanding(self) -> int:
        return self._maker.made - self._answered

    async def _send(self, count: int) -> None:
        group = list(self._maker.make(max(0, count)))
        # Flushed first: whatever may be delivered must be on record as sent.
        self._history.flush()
        for seq, key, content in group:
            attached = self._producer.attachments
            try:
                answer = await self._producer.send_soon(content, key=key, sequence_id=seq)
            except InputError as error:
                self._done(seq, Outcome.FAIL, None, str(error))
                continue
            answer.add_done_callback(partial(self._on_answer, seq, attached))

    def _on_answer(self, seq: int, attached: int, answer: asyncio.Future[MessageId]) -> None:
        self._note_connection()
        error = answer.exception()
        if error is None:
            found = answer.result()
            self._done(seq, Outcome.OK, None if found.is_duplicate else found, "")
            return
        # After a lost connection an earlier attempt may have been stored all the same.
        once = attached == self._producer.attachments
        is_certain = isinstance(error, Unreachable) or (isinstance(error, BrokerRefused) and once)
        self._done(seq, Outcome.FAIL if is_certain else Outcome.UNKNOWN, None, str(error))

    def _done(self, seq: int, outcome: Outcome, found: MessageId | None, error: str) -> None:
        place = None if found is None else place_of(found)
        number, epoch = self._task["producer"], self._task["epoch"]
        self._history.append(Sent(number, epoch, seq, outcome, place, error))
        self._answered += 1
        self.counts[outcome] += 1

    def _note_connection(self) -> None:
        if self._producer.attachments != self._attachments:
            self._attachments = self._producer.attachments
            number = self._task["producer"]
            self._history.append(Event(CONNECTION_LOST, self._task["name"], number))


class Consumer:
    """Receives, records, acknowledges and waits for the answer; asks for the cursor."""

    def __init__(
        self, task: dict[str, Any], recording: RecordingConsumer, history: HistoryWriter
    ) -> None:
        self._history = history
        self._recording = recording
        self._is_cumulative = AckKind(task["ack"]) is AckKind.CUMULATIVE
        self._delivered = 0

    @classmethod
    async def open(cls, task: dict[str, Any], client: Client, history: HistoryWriter) -> "Consumer":
        """Subscribe."""
        kind = SubscriptionType(task["type"])
        consumer = await client.consumer(
            task["topic"],
            task["sub"],
            subscription_type=kind.value,
            initial_position="latest",
            name=task["name"],
        )
        recording = RecordingConsumer(
            consumer,
            name=task["name"],
            kind=kind,
            run=task["run"],
            add=history.append,
            now_s=lambda: round(time.monotonic(), 6),
            knows_batch_index=False,
        )
        history.append(Subscribed(task["sub"], task["name"], kind))
        history.flush()
        return cls(task, recording, history)

    async def run(self, stop: asyncio.Event) -> None:
        """Receive until told to stop."""
        told, asked = 0.0, 0.0
        while not stop.is_set():
            await self._take_some()
            self._recording.note_connection()
            now = time.monotonic()
            if now - asked > _SNAPSHOT_S:
                asked = now
                await self._recording.snapshot()
            self._history.flush()
            if now - told > _PROGRESS_S:
                told = now
                say(progress={"delivered": self._delivered})
        say(progress={"delivered": self._delivered})
        await self._recording.consumer.close()

    async def _take_some(self) -> None:
        try:
            async with asyncio.timeout(_RECEIVE_WAIT_S):
                messages = await self._recording.consumer.receive_many(_RECEIVE_MAX)
        except TimeoutError:
            return
        for message in messages:
            self._recording.record(message)
        self._delivered += len(messages)
        # Flushed first: what is acknowledged never comes again.
        self._history.flush()
        done: Sequence[MessageId] = [message.id for message in messages]
        if self._is_cumulative:
            await self._recording.acknowledge(done[-1], cumulative=True)
        else:
            await asyncio.gather(*(self._recording.acknowledge(each) for each in done))


async def work() -> int:
    """Do the task on standard input."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the coordinator decides when to stop
    commands = await Commands.open()
    task = await commands.first()
    failures: list[BaseException] = []

    def failed(_: str, failure: BaseException) -> None:
        failures.append(failure)
        commands.stop.set()

    tasks = Tasks(failed)
    tasks.spawn("commands", commands.listen())
    client = Client(
        task["url"], real_runtime(), on_failure=failed, open_timeout_s=task["connect_s"]
    )
    path = Path(task["history"])
    history = HistoryWriter(path, Header(**task["header"], client=task["name"]), time.monotonic)
    role = Producer if task["role"] == "producer" else Consumer
    try:
        try:
            worker = await role.open(task, client, history)
        except AnabranchError as error:
            say(error=f"{task['role']} {task['name']} cannot connect to {task['url']}: {error}")
            return 1
        say(ready=True)
        await commands.began.wait()
        await worker.run(commands.stop)
    finally:
        await client.close()  # first: it reports the sends that are still open
        history.close()
        await tasks.close()
    if failures:
        raise failures[0]
    return 0


def main() -> int:
    """Run one client process."""
    return asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main())
