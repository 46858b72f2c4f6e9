"""Consumers of a dispatcher without a connection, which remember what they got and were told."""

from anabranch.broker.consumer import Consumer, KeySharing
from anabranch.runtime.network import Buffer
from anabranch.wire import BaseCommand, Decoder, Message, payload_of


class Outlet:
    """Reads what a consumer is sent as its client would."""

    def __init__(self) -> None:
        self.writable = True
        self.messages_out = 0
        self.got: list[bytes] = []
        self.told: list[bool] = []
        self._decoder = Decoder()

    def write_out(self, parts: list[Buffer]) -> None:
        for command in self._decoder.feed(b"".join(parts)):
            if type(command) is Message:
                self.got.append(bytes(payload_of(command.entry)))
            elif isinstance(command, BaseCommand):
                self.told.append(command.active_consumer_change.is_active)

    async def is_alive(self) -> bool:
        return True


class Member(Consumer):
    """A consumer and what it got."""

    def __init__(
        self,
        name: str,
        *,
        priority: int = 0,
        partition: int = -1,
        sharing: KeySharing | None = None,
        permits: int = 1000,
    ) -> None:
        self.seen = Outlet()
        super().__init__(
            self.seen,
            consumer_id=1,
            name=name,
            priority=priority,
            partition=partition,
            epoch=None,
            disconnect=lambda: None,
            sharing=sharing,
        )
        self.permits = permits

    @property
    def got(self) -> list[bytes]:
        return self.seen.got
