"""A broker in memory, and a client that is nothing but bytes: what the session tests stand on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anabranch.broker import Broker, BrokerSettings, Extensions, Mishaps
from anabranch.broker.access import Guard
from anabranch.ids import Position
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.managed_ledger import ManagedLedgerConfig, ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.wire import (
    BaseCommand,
    Command,
    Decoder,
    Message,
    MessageMetadata,
    SendReceipt,
    build_entry,
    encode,
    flow,
    payload_of,
    requests,
    send_frame,
)

TOPIC = "persistent://public/default/orders"


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that may take long on a busy machine."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


class Wire:
    """The connection object the broker writes to; a client reads what was written."""

    def __init__(self, broker: Broker) -> None:
        self.session = broker.new_connection()
        self.closed = False
        self.reading_paused = False
        self._decoder = Decoder()
        self._received: asyncio.Queue[Command] = asyncio.Queue()
        self.session.connection_made(self)

    # what the broker calls

    def write(self, data: Buffer) -> None:
        for command in self._decoder.feed(bytes(data)):
            self._received.put_nowait(command)

    def writelines(self, parts: Iterable[Buffer]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.session.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default

    # what a test calls

    def send(self, *commands: BaseCommand) -> None:
        self.session.data_received(b"".join(map(encode, commands)))

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self._received.get()

    async def ask(self, command: BaseCommand) -> BaseCommand:
        self.send(command)
        answer = await self.next()
        assert isinstance(answer, BaseCommand), answer
        return answer

    async def quiet(self) -> None:
        """Let everything settle; nothing may have been sent."""
        for _ in range(50):
            await asyncio.sleep(0)
        assert self._received.empty(), self._received.get_nowait()

    async def connect(self) -> "Wire":
        answer = await self.ask(requests.connect("test"))
        assert answer.type == BaseCommand.CONNECTED
        return self

    async def producer(self, number: int = 1, **options: Any) -> str:
        answer = await self.ask(requests.producer(TOPIC, number, 100 + number, **options))
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
        return answer.producer_success.producer_name

    async def subscribe(self, number: int = 1, sub_type: int = 0, **options: Any) -> BaseCommand:
        return await self.ask(
            requests.subscribe(TOPIC, "s", sub_type, number, 200 + number, **options)  # type: ignore[arg-type]
        )

    def publish(
        self, sequence_id: int, payload: bytes, number: int = 1, publish_time: int = 1
    ) -> None:
        metadata = MessageMetadata(
            producer_name="p", sequence_id=sequence_id, publish_time=publish_time
        )
        parts = send_frame(number, sequence_id, 1, build_entry(metadata, payload))
        self.session.data_received(b"".join(parts))

    async def published(self, count: int, times: Sequence[int] | None = None) -> list[Position]:
        """Publish numbers, at given times if any; return where they are."""
        positions = []
        for n in range(count):
            self.publish(n, b"%d" % n, publish_time=times[n] if times else 1)
            receipt = await self.next()
            assert type(receipt) is SendReceipt, receipt
            positions.append(Position(receipt.ledger_id, receipt.entry_id))
        return positions

    async def read(self, count: int, number: int = 1) -> list[int]:
        """Permit so many messages and return the numbers in them."""
        if count:
            self.session.data_received(flow(number, count))
        messages = [await self.next() for _ in range(count)]
        assert all(type(each) is Message for each in messages), messages
        return [int(bytes(payload_of(each.entry))) for each in messages]


async def memory_stores() -> tuple[MetadataStore, MemoryLedgerStore]:
    """Stores that outlive a broker."""
    return await open_store("memory:", real_runtime()), MemoryLedgerStore()


@asynccontextmanager
async def running_broker(
    settings: BrokerSettings | None = None,
    extensions: Extensions | None = None,
    config: ManagedLedgerConfig | None = None,
    stores: tuple[MetadataStore, MemoryLedgerStore] | None = None,
    guard: Guard | None = None,
    mishaps: Mishaps | None = None,
) -> AsyncIterator[Broker]:
    """A broker on memory stores, its own or given; a failed background task fails the test."""
    failures: list[BaseException] = []
    tasks = Tasks(lambda _, error: failures.append(error))
    runtime = real_runtime()
    metadata, ledgers = stores or await memory_stores()
    managed = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime, config=config)
    broker = Broker(
        runtime=runtime,
        metadata=metadata,
        managed_ledgers=managed,
        settings=settings or BrokerSettings(),
        tasks=tasks,
        extensions=extensions,
        guard=guard,
        mishaps=mishaps,
    )
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()
        await tasks.close()
        await managed.close()
        if stores is None:
            await metadata.close()
    if failures:
        raise failures[0]
