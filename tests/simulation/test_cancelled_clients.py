"""Whatever call of the SDK is cancelled, and when: nothing is lost, and nothing is left behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from anabranch.client import EARLIEST, Batching, Client, Consumer, MessageId, Producer, Reader
from anabranch.client.message import Message
from anabranch.errors import AnabranchError
from anabranch.runtime import Runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.simulation import World

T = TypeVar("T")
SEEDS = 6
STEPS = 250
SERVER = "server"
TOPIC = "persistent://public/default/t"
QUIET_S = 30.0
"""So long nothing came: nothing will."""


class Story:
    """One client that changes its mind, and what it is sure of."""

    def __init__(self, runtime: Runtime, world: World, server: Standalone) -> None:
        self._entropy = runtime.entropy
        self._world = world
        self._server = server
        self._runtime = runtime
        self.client = Client(f"pulsar://{SERVER}:6650", runtime, on_failure=self._failed)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.readers: list[Reader] = []
        self.stored: set[bytes] = set()
        self.shared: set[bytes] = set()
        """What came by the shared subscription."""
        self.moved: set[bytes] = set()
        """What came by the subscription that is moved about and never acknowledged."""
        self._numbers = 0

    def _failed(self, name: str, error: BaseException) -> None:
        self._world.fail(AssertionError(f"{name}: {error!r}"), error)

    async def cancelled(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Begin a call and cancel it at some moment, if it is not done by then."""
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)  # a call that never began has nothing to tidy up
        choice = self._entropy.below(3)
        if choice == 0:
            for _ in range(self._entropy.below(12)):
                await asyncio.sleep(0)
        elif choice == 1:
            await asyncio.wait([task], timeout=self._entropy.uniform(0.0, 0.02))
        else:
            await asyncio.wait([task], timeout=self._entropy.uniform(0.0, 1.0))
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            self._world.reach("cancelled")
            return None
        error = task.exception()
        if error is not None:
            assert isinstance(error, AnabranchError), repr(error)
            self._world.reach("refused")
            return None
        self._world.reach("done")
        return task.result()

    async def play(self) -> None:
        """Random calls, each cancelled at some moment."""
        moving = await self.client.consumer(TOPIC, "moving", initial_position="earliest")
        first = await self.client.consumer(TOPIC, "s", subscription_type="shared")
        await first.close()
        actions = [
            self._open_producer,
            self._open_consumer,
            self._open_reader,
            self._close,
            self._send,
            self._send,
            self._send,
            self._receive,
            self._receive,
            self._read,
            self._unsubscribe,
        ]
        for _ in range(STEPS):
            await actions[self._entropy.below(len(actions))]()
            await self._move(moving)
        await self._end(moving)

    async def _open_producer(self) -> None:
        batching = Batching(messages_max=5, delay_s=0.01) if self._entropy.below(2) else None
        call = self.client.producer(TOPIC, batching=batching, pending_messages_max=5)
        if (producer := await self.cancelled(call)) is not None:
            self.producers.append(producer)

    async def _open_consumer(self) -> None:
        call = self.client.consumer(TOPIC, "s", subscription_type="shared", queue_messages=10)
        if (consumer := await self.cancelled(call)) is not None:
            self.consumers.append(consumer)

    async def _open_reader(self) -> None:
        start: Any = "earliest" if self._entropy.below(2) else "latest"
        if (reader := await self.cancelled(self.client.reader(TOPIC, start=start))) is not None:
            self.readers.append(reader)

    async def _close(self) -> None:
        opened: list[list[Any]] = [self.producers, self.consumers, self.readers]
        for some in opened:
            if len(some) > 1:
                await self.cancelled(some.pop(self._entropy.below(len(some))).close())

    async def _send(self) -> None:
        for producer in self.producers:
            for _ in range(self._entropy.below(10)):
                self._numbers += 1
                value = b"%d" % self._numbers
                if await self.cancelled(producer.send(value)) is not None:
                    self.stored.add(value)

    async def _receive(self) -> None:
        for consumer in self.consumers:
            for _ in range(self._entropy.below(10)):
                message = await self.cancelled(consumer.receive())
                if message is not None:
                    self.shared.add(message.value)
                    wait = bool(self._entropy.below(2))
                    await self.cancelled(consumer.acknowledge(message, wait=wait))

    async def _read(self) -> None:
        for reader in self.readers:
            choice = self._entropy.below(4)
            if choice == 0:
                await self.cancelled(reader.seek(EARLIEST))
            elif choice == 1:
                await self.cancelled(reader.seek(self._runtime.clock.wall_ms() - 1000))
            elif choice == 2:
                await self.cancelled(reader.has_message_available())
            else:
                await self.cancelled(reader.read_next())

    async def _unsubscribe(self) -> None:
        consumer = await self.cancelled(self.client.consumer(TOPIC, "passing"))
        if consumer is not None:
            await self.cancelled(consumer.unsubscribe())
            await consumer.close()

    async def _move(self, moving: Consumer) -> None:
        choice = self._entropy.below(8)
        if choice == 0:
            place: MessageId | int = EARLIEST if self._entropy.below(2) else 0
            await self.cancelled(moving.seek(place))
        elif choice < 4 and (message := await self.cancelled(moving.receive())) is not None:
            self.moved.add(message.value)

    async def _end(self, moving: Consumer) -> None:
        opened: list[Any] = [*self.producers, *self.consumers, *self.readers]
        for each in opened:
            await each.close()
        await self._drain(moving, self.moved)
        assert self.stored <= self.moved, f"not seen: {sorted(self.stored - self.moved)}"
        await moving.close()
        await asyncio.sleep(QUIET_S)
        self._assert_nothing_is_left()
        last = await self.client.consumer(TOPIC, "s", subscription_type="shared")
        for message in await self._drain(last, self.shared):
            await last.acknowledge(message)
        assert self.stored <= self.shared, f"lost: {sorted(self.stored - self.shared)}"
        await self.cancelled(self.client.close())
        await asyncio.sleep(QUIET_S)
        assert not self._server._broker.sessions
        self._world.reach("messages", len(self.stored))

    async def _drain(self, consumer: Consumer, found: set[bytes]) -> list[Message]:
        messages = []
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    messages.append(await consumer.receive())
            except TimeoutError:
                return messages
            found.add(messages[-1].value)

    def _assert_nothing_is_left(self) -> None:
        for session in self._server._broker.sessions:
            assert not session.producers, session.producers
            assert not session.consumers, session.consumers
        assert not self.client._open
        for connection in self.client.brokers.connections.values():
            assert not connection.producers
            assert not connection.consumers
            assert not connection._requests


async def play(world: World) -> None:
    """A server, and a client that cancels."""
    started: asyncio.Future[Standalone] = asyncio.get_running_loop().create_future()

    async def serve(runtime: Runtime) -> None:
        server = Standalone(runtime, Settings(host=SERVER, data="/data"))
        await server.start()
        started.set_result(server)
        failure = await server.serve_until(asyncio.Event())
        raise AssertionError(failure)

    world.process(SERVER).start(serve)
    server = await started
    client = world.process("client")
    client.start(lambda runtime: Story(runtime, world, server).play())
    await client.wait_exit()


@pytest.mark.timeout(300)
def test_cancelled_calls_lose_nothing_and_leave_nothing() -> None:
    reached: dict[str, int] = {}
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.run(play, time_limit_s=36_000)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        for mark, times in world.reached.items():
            reached[mark] = reached.get(mark, 0) + times
    assert min(reached["cancelled"], reached["done"], reached["messages"]) > 100 * SEEDS / 4
