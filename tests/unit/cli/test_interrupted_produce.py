"""Ctrl-C ends `produce`, and what was taken until then is still sent and answered."""

from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

from anabranch.cli import pulsar_session
from anabranch.cli.pulsar_session import INTERRUPTED, PulsarSession


class GatheringProducer:
    """Keeps messages until it is flushed."""

    def __init__(self) -> None:
        self.gathered: list[Callable[[Any, Any], None]] = []
        self.closed = False

    def send_async(self, _payload: bytes, answered: Callable[[Any, Any], None], **_: Any) -> None:
        self.gathered.append(answered)

    def flush(self) -> None:
        for answered in self.gathered:
            answered(pulsar.Result.Ok, None)

    def close(self) -> None:
        self.closed = True


class OfflineClient:
    """A client library without a server."""

    def __init__(self, producer: GatheringProducer) -> None:
        self._producer = producer

    def create_producer(self, _topic: str, **_: Any) -> GatheringProducer:
        return self._producer

    def shutdown(self) -> None:
        pass


def interrupted_input() -> Iterator[bytes]:
    yield b"first"
    yield b"second"
    raise KeyboardInterrupt


def test_what_was_taken_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = GatheringProducer()
    monkeypatch.setattr(pulsar_session, "require_listener", lambda _url: None)
    monkeypatch.setattr(pulsar, "Client", lambda *_, **__: OfflineClient(producer))
    with PulsarSession("pulsar://nowhere:1") as session:
        summary = session.publish(
            "t", interrupted_input(), key=None, compression="NONE", batching=True, rate=None
        )
    assert (summary.sent, summary.acknowledged) == (2, 2)
    assert producer.closed
    assert summary.exit_code == INTERRUPTED
