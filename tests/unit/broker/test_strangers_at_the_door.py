"""What a peer may take before it said who it is, and how many peers there may be."""

import asyncio

import pytest
from wire_peer import Wire, eventually, running_broker

from anabranch.broker import BrokerSettings, liveness
from anabranch.broker.limits import HANDSHAKE_FRAME_BYTES_MAX
from anabranch.wire import BaseCommand, ServerError, requests


@pytest.mark.goal("core.S1", part="strangers", broken_by="strangers_send_what_they_like")
async def test_a_stranger_may_not_declare_a_large_frame() -> None:
    async with running_broker() as broker:
        stranger = Wire(broker)
        stranger.session.data_received((HANDSHAKE_FRAME_BYTES_MAX - 3).to_bytes(4, "big"))
        assert stranger.closed
        known = await Wire(broker).connect()
        known.session.data_received((HANDSHAKE_FRAME_BYTES_MAX - 3).to_bytes(4, "big"))
        assert not known.closed


@pytest.mark.goal("core.S1", part="strangers", broken_by="silence_is_waited_for")
async def test_a_stranger_that_says_nothing_is_sent_away_before_a_client_is_pinged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness, "HANDSHAKE_S_MAX", 0.01)
    async with running_broker() as broker:
        known, stranger = await Wire(broker).connect(), Wire(broker)
        await eventually(lambda: stranger.closed)
        await known.quiet()
        assert not known.closed


@pytest.mark.goal("core.S1", part="strangers", broken_by="any_number_may_connect")
@pytest.mark.parametrize(
    "settings",
    [BrokerSettings(connections_max=2), BrokerSettings(connections_per_host_max=2)],
    ids=["in all", "from one host"],
)
async def test_one_connection_too_many_is_told_why_and_makes_room_for_none(
    settings: BrokerSettings,
) -> None:
    async with running_broker(settings) as broker:
        first, second = await Wire(broker).connect(), await Wire(broker).connect()
        third = Wire(broker)
        refusal = await third.next()
        assert refusal.error.error == ServerError.NotAllowedError
        assert "maximum number of connections" in refusal.error.message
        assert third.closed
        await asyncio.sleep(0)  # the refused one is gone, which counts for nothing
        assert Wire(broker).closed
        first.close()
        await eventually(lambda: first.session not in broker.sessions)
        again = await Wire(broker).connect()
        assert (await again.ask(requests.partition_metadata("t", 1))).type == (
            BaseCommand.PARTITIONED_METADATA_RESPONSE
        )
        assert not second.closed


@pytest.mark.goal("core.S1", part="strangers", broken_by="one_host_counts_for_all")
async def test_one_host_does_not_take_the_places_of_another() -> None:
    class Elsewhere(Wire):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return ("192.0.2.2", 4711) if name == "peername" else default

    async with running_broker(BrokerSettings(connections_per_host_max=1)) as broker:
        await Wire(broker).connect()
        await Elsewhere(broker).connect()
        assert Wire(broker).closed
