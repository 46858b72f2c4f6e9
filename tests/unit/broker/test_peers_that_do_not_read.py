"""A peer that asks and does not read: what is kept for it is bounded, and it may be dead."""

import asyncio
import socket
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, eventually, running_broker

from anabranch import limits
from anabranch.broker import BrokerSettings
from anabranch.broker import requests as served_requests
from anabranch.broker import session as sessions
from anabranch.broker.session import Session
from anabranch.wire import (
    BaseCommand,
    Message,
    MessageMetadata,
    SendReceipt,
    ServerError,
    build_entry,
    encode,
    flow,
    replies,
    requests,
    send_frame,
)

MIB = 1 << 20


def damaged(sequence_id: int, size: int) -> bytes:
    """A SEND whose checksum is wrong."""
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    frame = bytearray(b"".join(send_frame(1, sequence_id, 1, build_entry(metadata, bytes(size)))))
    frame[-1] ^= 1
    return bytes(frame)


async def test_whoever_does_not_take_answers_is_not_read_from() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.session.pause_writing()
        assert wire.reading_paused
        wire.session.resume_writing()
        assert not wire.reading_paused


async def test_a_peer_is_read_from_again_when_nothing_speaks_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PENDING_PUBLISHES_PER_CONNECTION_MAX", 2)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        wire.publish(0, b"x")
        wire.publish(1, b"x")
        wire.session.pause_writing()
        for _ in range(2):
            assert type(await wire.next()) is SendReceipt
        assert wire.reading_paused, "all is stored, but the peer does not read"
        wire.session.resume_writing()
        assert not wire.reading_paused
        (topic,) = broker.topics.all()
        waiting: list[Any] = []
        monkeypatch.setattr(topic.ledger, "append", lambda entry, done: waiting.append(done))
        wire.publish(2, b"x")
        wire.publish(3, b"x")
        wire.session.pause_writing()
        wire.session.resume_writing()
        assert wire.reading_paused, "the peer reads, but nothing is stored"


async def test_refused_sends_count_and_keep_nothing_but_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PENDING_PUBLISHES_PER_CONNECTION_MAX", 4)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        append, waiting = topic.ledger.append, []
        monkeypatch.setattr(
            topic.ledger, "append", lambda entry, done: waiting.append((entry, done))
        )
        wire.publish(0, b"slow")
        wire.session.data_received(damaged(1, 1000))
        kept = wire.session.producers[1][0]._waiting[0][1]
        cells = [cell.cell_contents for cell in kept.__closure__ or ()]
        assert not any(hasattr(each, "entry") for each in cells), "the entry is let go of"
        for sequence_id in (2, 3):
            assert not wire.reading_paused
            wire.session.data_received(damaged(sequence_id, 1000))
        assert wire.reading_paused, "as many wait for an answer as may"
        append(*waiting[0])
        assert type(await wire.next()) is SendReceipt
        for sequence_id in (1, 2, 3):
            refused = (await wire.next()).send_error
            assert (refused.sequence_id, refused.error) == (sequence_id, ServerError.ChecksumError)
        assert not wire.reading_paused


@pytest.mark.parametrize("takes", [False, True])
async def test_keep_alive_of_a_peer_that_is_not_read_from_looks_at_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    async with running_broker(BrokerSettings(keep_alive_interval_s=0.02)) as broker:
        wire = await Wire(broker).connect()
        unread = 1000 * MIB

        def unread_bytes() -> int:
            nonlocal unread
            unread -= int(takes)
            return unread

        monkeypatch.setattr(wire, "get_write_buffer_size", unread_bytes)
        wire.session.pause_writing()
        if takes:
            await asyncio.sleep(0.2)
            assert not wire.closed
        else:
            await eventually(lambda: wire.closed)


async def test_a_peer_that_reads_nothing_gives_its_place_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LIVENESS_CHECK_S", 0.01)
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.producer(name="p", name_is_users=True)
        first.session.pause_writing()
        second.send(requests.producer(TOPIC, 1, 6, name="p", name_is_users=True))
        assert (await second.next()).type == BaseCommand.PRODUCER_SUCCESS
        assert first.closed


async def test_a_slow_consumer_still_gets_everything() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.subscribe()
        await wire.producer()
        await wire.published(5)
        wire.session.pause_writing()
        wire.session.data_received(flow(1, 5))
        await wire.quiet()
        wire.session.resume_writing()
        assert all([type(await wire.next()) is Message for _ in range(5)])
        assert (await wire.ask(replies.ping())).type == BaseCommand.PONG


async def test_what_a_socket_brings_in_is_bounded_if_nobody_reads_the_answers() -> None:
    loop = asyncio.get_running_loop()
    async with running_broker() as broker:
        server = await loop.create_server(broker.new_connection, "127.0.0.1", 0)
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        peer.setblocking(False)
        try:
            await loop.sock_connect(peer, server.sockets[0].getsockname())
            await loop.sock_sendall(peer, encode(requests.connect("test")))
            # The name of the listener comes back in the answer.
            question = encode(requests.lookup(TOPIC, 1, listener_name="x" * 900)) * 1000
            sent, blocked = 0, False
            while sent < 64 * MIB and not blocked:
                try:
                    async with asyncio.timeout(2):
                        await loop.sock_sendall(peer, question)
                    sent += len(question)
                except TimeoutError:
                    blocked = True
            assert blocked, "it is read from although it takes no answer"
            (session,) = broker.sessions
            assert session._connection is not None
            assert session._connection.get_write_buffer_size() < 4 * MIB
        finally:
            peer.close()
            server.close()
            await server.wait_closed()


@pytest.mark.parametrize("takes", [True, False])
async def test_whoever_takes_what_is_sent_is_alive_however_slowly(
    monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    monkeypatch.setattr(limits, "LIVENESS_CHECK_S", 0.05)
    async with running_broker() as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        await first.subscribe()
        left = iter(range(20 * MIB, 0, -MIB)) if takes else iter([MIB] * 20)
        monkeypatch.setattr(first, "get_write_buffer_size", lambda: next(left), raising=False)
        first.session.pause_writing()
        answer = await second.ask(requests.subscribe(TOPIC, "s", 0, 1, 2))
        assert answer.type == (BaseCommand.ERROR if takes else BaseCommand.SUCCESS)
        assert first.session.closed == (not takes)


async def test_requests_that_take_long_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that hangs must not have every client's impatience kept in memory."""
    answers = asyncio.Event()

    async def hangs(session: Session, command: BaseCommand) -> None:
        await answers.wait()
        session.reply(replies.success(command.lookupTopic.request_id))

    monkeypatch.setitem(served_requests._REQUESTS, BaseCommand.LOOKUP, hangs)
    monkeypatch.setattr(sessions, "REQUESTS_PER_CONNECTION_MAX", 10)
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        for number in range(10):
            assert not wire.reading_paused, f"{number} are few"
            wire.send(requests.lookup(TOPIC, number))
        assert wire.reading_paused
        await wire.quiet()
        answers.set()
        assert [(await wire.next()).success.request_id for _ in range(10)] == list(range(10))
        assert not wire.reading_paused
        assert (await wire.ask(replies.ping())).type == BaseCommand.PONG
