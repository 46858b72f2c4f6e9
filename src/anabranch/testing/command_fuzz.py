"""Hostile commands for a whole broker: nothing unforeseen, no request unanswered, others served.

    python -m anabranch.testing.command_fuzz --seeds 1000 [--start 0]

A seed is one life of a server in this process, with clients that are nothing but bytes. The program
prints a verdict as JSON; seeds that break something are named.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import traceback
from collections.abc import Iterable
from typing import Any, Final

from anabranch.broker import Broker
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.hostile_commands import HostileCommands
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
    replies,
    requests,
    send_frame,
)

_ANSWER_S_MAX: Final = 20.0
_WITNESS: Final = "persistent://public/default/witness"
_COMMANDS_PER_TURN_MAX: Final = 6


class Broken(AssertionError):
    """The broker did what it never may."""


class BytesPeer:
    """The other end of a session, without a socket."""

    def __init__(self, broker: Broker) -> None:
        self.session = broker.new_connection()
        self.closed = False
        self.answered: set[int] = set()
        self.news = asyncio.Event()
        self.received: list[Command] = []
        self._decoder = Decoder()
        self.session.connection_made(self)
        self.tell(encode(requests.connect("hostile")))

    def tell(self, data: bytes) -> None:
        """Send bytes to the broker."""
        if not self.closed:
            self.session.data_received(data)

    async def until(self, what: str, condition: Any) -> None:
        """Wait until something holds, or the connection is over."""
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                while not (condition() or self.closed):
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise Broken(f"{what} within {_ANSWER_S_MAX:g} s") from None

    # --- what the broker calls: see `Connection` ---------------------------------------------

    def write(self, data: Buffer) -> None:
        """Take what the broker says, and note which requests are answered by it."""
        for command in self._decoder.feed(bytes(data)):
            self.received.append(command)
            if isinstance(command, BaseCommand):
                if command.type == BaseCommand.PING:
                    asyncio.get_running_loop().call_soon(self.tell, encode(replies.pong()))
                for field, body in command.ListFields():
                    if field.number > 1 and "request_id" in body.DESCRIPTOR.fields_by_name:
                        self.answered.add(body.request_id)
        del self.received[:-50]
        self.news.set()

    def writelines(self, parts: Iterable[Buffer]) -> None:
        """See `write`."""
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        """Nothing waits in a socket that is none."""

    def resume_reading(self) -> None:
        """Nothing waits in a socket that is none."""

    def close(self) -> None:
        """The broker has had enough."""
        if not self.closed:
            self.closed = True
            self.news.set()
            asyncio.get_running_loop().call_soon(self.session.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Where it seems to come from."""
        return ("192.0.2.66", 6666) if name == "peername" else default


async def fuzz(seed: int, commands: int) -> int:
    """Send so many commands; return how many of them were requests that were answered.

    Raises:
        Broken: if the server fails, leaves a request unanswered, or another client unserved.
    """
    rng = random.Random(seed)
    settings = Settings(
        metadata_url="memory:",
        ledgers_url="memory:",
        port=0,
        web_port=0,
        deduplication=rng.random() < 0.5,
    )
    server = Standalone(real_runtime(), settings)
    await server.start()
    try:
        answered = await _send_all(server, HostileCommands(rng), rng, commands)
        await _is_served(server.broker)
        return answered
    finally:
        failure = server.why_not_ready()
        await server.close()
        if failure is not None:
            raise Broken(failure) from server._failure


async def _send_all(
    server: Standalone, made: HostileCommands, rng: random.Random, commands: int
) -> int:
    peer, asked, answered = BytesPeer(server.broker), set[int](), 0
    opening = made.opening()
    for number in range(commands):
        data, request = opening.pop(0) if opening else made.next()
        peer.tell(data)
        if request is not None:
            asked.add(request)
        if peer.closed or number % rng.randint(1, _COMMANDS_PER_TURN_MAX) == 0:
            wanted = set(asked)
            await peer.until(f"no answer to {wanted}", lambda p=peer, w=wanted: w <= p.answered)
            answered += len(wanted & peer.answered)
            asked.clear()
            if server.why_not_ready() is not None:
                break
        if peer.closed:
            peer, opening = BytesPeer(server.broker), made.opening()
    peer.close()
    return answered


async def _is_served(broker: Broker) -> None:
    """Another client produces and consumes as if nothing had happened."""
    peer = BytesPeer(broker)
    peer.tell(encode(requests.producer(_WITNESS, 1, 1)))
    await peer.until("no producer", lambda: 1 in peer.answered)
    peer.tell(encode(requests.subscribe(_WITNESS, "s", 0, 1, 2)))  # type: ignore[arg-type]
    await peer.until("no consumer", lambda: 2 in peer.answered)
    peer.tell(flow(1, 10))
    metadata = MessageMetadata(producer_name="witness", sequence_id=0, publish_time=1)
    peer.tell(b"".join(send_frame(1, 0, 1, build_entry(metadata, b"still here"))))
    for kind in (SendReceipt, Message):
        await peer.until(
            f"no {kind.__name__}",
            lambda k=kind: any(type(each) is k for each in peer.received),
        )
    if peer.closed:
        raise Broken("another client is not served any more")
    peer.close()


def main(arguments: list[str] | None = None) -> int:
    """Run seeds and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.command_fuzz")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--commands", type=int, default=300)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    broken, answered = [], 0
    for seed in range(options.start, options.start + options.seeds):
        try:
            answered += asyncio.run(fuzz(seed, options.commands))
        except Exception:  # noqa: BLE001 - whatever it is, the seed repeats it
            broken.append(seed)
            traceback.print_exc()
    print(json.dumps({"seeds": options.seeds, "answered": answered, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
