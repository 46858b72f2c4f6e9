"""Ends a ZooKeeper session from outside, as if its client had been gone for its timeout."""

import asyncio
from asyncio import FIRST_COMPLETED
from typing import Final

from anabranch.errors import Unreachable
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.connection import Call, ServerConnection
from anabranch.metadata.zookeeper.replies import Change
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import RealNetwork

_ANSWER_S_MAX: Final = 10


class _Nobody:
    """Listens to a connection that is used once."""

    def changed(self, changes: list[Change]) -> None:
        """See `Listener`."""

    def answered(self, zxid: int) -> None:
        """See `Listener`."""

    def rearmed(self, zxid: int, error: int) -> None:
        """See `Listener`."""

    def writable_again(self) -> None:
        """See `Listener`."""


async def end_session(victim: ZooKeeperStore) -> None:
    """Take the session over by its password and close it; its own client is not told."""
    session = victim.client.link.session
    number, password = session.number, session.password
    async with asyncio.timeout(_ANSWER_S_MAX):
        # The victim comes back at once, and may take its session back before it is closed.
        closed = False
        while not closed:
            closed = await _close(victim, number, password)


async def _close(victim: ZooKeeperStore, number: int, password: bytes) -> bool:
    server = victim.client.servers[0]
    connection = ServerConnection(_Nobody())
    await RealNetwork().connect(server.host, server.port, lambda: connection)
    try:
        connection.greet(requests.hello(0, 30_000, number, password))
        welcome = await connection.welcome
        if welcome.session != number:
            return True  # it is over already
        farewell = Call(requests.close(), 0.0, None)
        connection.send([farewell])
        await asyncio.wait([farewell.answer, connection.lost], return_when=FIRST_COMPLETED)
        return farewell.answer.done()
    except Unreachable:
        return False
    finally:
        connection.abort()
