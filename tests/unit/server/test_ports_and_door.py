"""Ports that cannot be had are explained; the door lets nobody in before and after."""

import asyncio
import errno
import os

import pytest

from anabranch.runtime.real import real_runtime
from anabranch.server.ports import Door, explain


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRINUSE, "port 80 of h is in use: stop the process"),
        (errno.EACCES, "may not be opened by this user: choose one above 1023 with --port"),
        (errno.EADDRNOTAVAIL, "cannot listen on h port 80: Cannot assign requested address"),
    ],
)
def test_reason_and_flag_are_named(number, words):
    error = OSError(number, os.strerror(number))
    text = str(explain(error, host="h", port=80, flag="--port"))
    assert words in text
    assert "--port" in text


class Visitor:
    """A connection's end that notes what happens to it."""

    def __init__(self, loop):
        self.ended = loop.create_future()
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        self.transport.close()

    def eof_received(self):
        return None

    def connection_lost(self, exc):
        self.ended.set_result(self.received)

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


class Host(Visitor):
    def connection_made(self, transport):
        transport.write(b"welcome")


async def test_door_turns_connections_away_unless_it_is_open():
    loop = asyncio.get_running_loop()
    network = real_runtime().network
    door = Door()
    listener = await network.listen("127.0.0.1", 0, door.new_connection)

    async def visit() -> bytes:
        visitor = await network.connect("127.0.0.1", listener.port, lambda: Visitor(loop))
        return await asyncio.wait_for(visitor.ended, 5)

    assert await visit() == b""
    door.open(lambda: Host(loop))
    assert await visit() == b"welcome"
    door.shut()
    assert await visit() == b""
    await listener.close()
