"""Acknowledgements that cannot be made durable: the client hears of it, the topic goes on."""

import pytest
from wire_peer import Wire, running_broker

from anabranch import limits
from anabranch.wire import AckedId, ServerError, ack, flow


async def test_an_acknowledgement_that_cannot_be_kept_is_refused_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 0)
    monkeypatch.setattr(limits, "CURSOR_ENTRY_BYTES_MAX", 6)
    async with running_broker() as broker:
        wire = Wire(broker)
        await wire.connect()
        await wire.subscribe(sub_type=1)
        await wire.producer()
        for sequence_id in range(2):
            wire.publish(sequence_id, b"message")
            await wire.next()
        wire.session.data_received(flow(1, 10))
        one, two = [await wire.next(), await wire.next()]
        wire.session.data_received(
            ack(1, 0, [AckedId(two.ledger_id, two.entry_id, None, None)], 77)
        )
        answer = (await wire.next()).ackResponse
        assert (answer.consumer_id, answer.request_id) == (1, 77)
        assert answer.error == ServerError.PersistenceError
        assert "acknowledgements of cursor s" in answer.message
        wire.session.data_received(
            ack(1, 0, [AckedId(one.ledger_id, one.entry_id, None, None)], 78)
        )
        answer = (await wire.next()).ackResponse
        assert answer.request_id == 78
        assert not answer.HasField("error"), "without a gap both are stored"
