"""Who is let in by its version, who is still there, and what a peer is told at the end."""

import pytest
from wire_peer import Wire, eventually, running_broker

from anabranch import limits
from anabranch.broker import BrokerSettings
from anabranch.wire import (
    PROTOCOL_VERSION,
    BaseCommand,
    MessageMetadata,
    ServerError,
    build_entry,
    encode,
    flow,
    replies,
    requests,
    send_frame,
)

NO_REQUEST = 2**64 - 1
ENTRY = build_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")
MEANINGLESS = {
    "a second greeting": (encode(requests.connect("again")), "CONNECT"),
    "a message of no producer": (b"".join(send_frame(9, 0, 1, ENTRY)), "producer 9"),
    "what only servers say": (encode(replies.success(1)), "SUCCESS"),
    "permits for nothing": (flow(1, 0), "0 permits"),
    "garbage": (b"\x00\x00\x00\x10\x00\x00\x00\x0cgarbage-here", "malformed"),
    "a command larger than its frame": (b"\x00\x00\x00\x08\x00\x00\x00\x0cabcd", "12 bytes"),
}


@pytest.mark.goal("core.B1", part="old protocol", broken_by="any_protocol_is_spoken")
@pytest.mark.parametrize("version", [0, 4, 10])
async def test_a_client_of_a_protocol_that_is_too_old_is_told_so(version: int) -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        refusal = (await wire.ask(requests.connect("old", protocol_version=version))).error
        assert (refusal.request_id, refusal.error) == (
            NO_REQUEST,
            ServerError.UnsupportedVersionError,
        )
        assert f"protocol version {version} is not spoken" in refusal.message
        assert wire.closed


@pytest.mark.parametrize("version", [11, 19, PROTOCOL_VERSION, PROTOCOL_VERSION + 4])
async def test_the_older_of_both_versions_is_spoken(version: int) -> None:
    async with running_broker() as broker:
        wire = Wire(broker)
        welcome = (await wire.ask(requests.connect("c", protocol_version=version))).connected
        assert welcome.protocol_version == min(version, PROTOCOL_VERSION)
        assert welcome.max_message_size == limits.MESSAGE_BYTES_MAX
        assert welcome.server_version
        assert not wire.closed


@pytest.mark.goal("core.B1", part="reasons", broken_by="refusals_give_no_reason")
@pytest.mark.parametrize("name", MEANINGLESS)
async def test_whoever_makes_no_sense_is_told_why_before_the_end(name: str) -> None:
    data, word = MEANINGLESS[name]
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.session.data_received(data)
        reason = (await wire.next()).error
        assert (reason.request_id, reason.error) == (NO_REQUEST, ServerError.UnknownError)
        assert word in reason.message
        assert wire.closed
        other = await Wire(broker).connect()
        assert (await other.ask(replies.ping())).type == BaseCommand.PONG


@pytest.mark.goal("core.B1", part="oversize frames", broken_by="frames_are_as_large_as_they_say")
async def test_a_frame_that_is_too_large_is_refused_by_its_first_bytes() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        wire.session.data_received((limits.FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert wire.closed
        assert "above the limit" in (await wire.next()).error.message
        fits = await Wire(broker).connect()
        fits.session.data_received((limits.FRAME_BYTES_MAX - 4).to_bytes(4, "big"))
        assert not fits.closed


@pytest.mark.goal("core.B1", part="keep-alive", broken_by="the_silent_are_kept")
async def test_keep_alive_pings_and_drops_the_silent() -> None:
    async with running_broker(BrokerSettings(keep_alive_interval_s=0.05)) as broker:
        wire = await Wire(broker).connect()
        assert (await wire.next()).type == BaseCommand.PING
        wire.send(replies.pong())
        assert (await wire.next()).type == BaseCommand.PING
        await eventually(lambda: wire.closed)
        never_connected = Wire(broker)
        await eventually(lambda: never_connected.closed)
