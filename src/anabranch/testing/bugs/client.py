"""Planted bugs of `anabranch.client`."""

from typing import Any

from anabranch.client.admin.calls import Calls
from anabranch.client.admin.refusals import AdminRefused
from anabranch.client.admin.web import WebAnswer, WebClient
from anabranch.client.attachment import Attachment
from anabranch.client.batch_acks import BatchAcks
from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import TopicConsumer
from anabranch.client.credentials import Token
from anabranch.client.entry_sender import EntrySender
from anabranch.client.in_flight import InFlight
from anabranch.client.message import EARLIEST, MessageId
from anabranch.client.room import Room
from anabranch.errors import OutcomeUnknown, Unreachable
from anabranch.ids import Position
from anabranch.testing.planted import original, planted


@planted(
    "sdk_sends_again_behind_the_rest",
    target="anabranch.client.in_flight:InFlight.connection_lost",
)
def sdk_sends_again_behind_the_rest(self: InFlight[Any]) -> None:
    """After a lost connection what was sent before comes behind what waits to be sent."""
    self._unsent.extend(reversed(self._sent))
    self._sent.clear()


@planted("sdk_calls_unknown_unsent", target="anabranch.client.entry_sender:EntrySender._expire")
def sdk_calls_unknown_unsent(self: EntrySender) -> None:
    """A send without an answer is reported as if it had never left."""
    self._expiry = None
    for op in self._in_flight.expired(self._loop.time()):
        self._fail(op, Unreachable("not sent in time"))
    self._watch_time()


@planted("sdk_waits_for_no_room", target="anabranch.client.room:Room._fits")
def sdk_waits_for_no_room(self: Room, size: int, count: int) -> bool:
    """Messages without an answer are counted and not bounded."""
    return True


@planted(
    "sdk_acknowledges_a_batch_by_its_first",
    target="anabranch.client.batch_acks:BatchAcks.acknowledge",
)
def sdk_acknowledges_a_batch_by_its_first(
    self: BatchAcks, position: Position, batch_index: int, batch_size: int
) -> int:
    """The first acknowledged message of a batch takes the others along."""
    return 0


@planted("sdk_reader_starts_over", target="anabranch.client.consumer:TopicConsumer.place_to_begin")
def sdk_reader_starts_over(self: TopicConsumer) -> MessageId | None:
    """A reader whose connection was lost has forgotten how far it was."""
    begin: MessageId | None = original("sdk_reader_starts_over")(self)
    if begin is None or self.attachments == 0:
        return begin
    self._acking.forget()
    self.start_id, self.start_inclusive = EARLIEST, True
    return EARLIEST


@planted("sdk_seek_stays", target="anabranch.client.consumer:TopicConsumer.seek")
async def sdk_seek_stays(
    self: TopicConsumer, to: MessageId | int, *, inclusive: bool = True
) -> None:
    """A seek that asks nobody."""


@planted("sdk_shows_nothing", target="anabranch.client.credentials:Token.data")
def sdk_shows_nothing(self: Token) -> bytes:
    """A client comes without its token."""
    return b""


@planted(
    "sdk_hears_no_challenge", target="anabranch.client.connection:BrokerConnection._on_challenge"
)
def sdk_hears_no_challenge(self: BrokerConnection) -> None:
    """A broker that asks again who this is gets no answer."""


@planted(
    "sdk_stays_in_the_old_cluster", target="anabranch.client.attachment:Attachment.on_migrated"
)
def sdk_stays_in_the_old_cluster(self: Attachment, url: str, url_tls: str) -> None:
    """Where a topic has moved to is not remembered."""


@planted("admin_client_believes_every_answer", target="anabranch.client.admin.calls:Calls.call")
async def admin_client_believes_every_answer(
    self: Calls,
    method: str,
    path: str,
    body: Any = None,
    *,
    query: Any = None,
    patience_s: float = 0.0,
) -> WebAnswer:
    """A refusal is taken for an answer."""
    try:
        answer: WebAnswer = await original("admin_client_believes_every_answer")(
            self, method, path, body, query=query, patience_s=patience_s
        )
    except AdminRefused:
        return WebAnswer(200, {}, b"{}")
    return answer


@planted("admin_client_repeats_changes", target="anabranch.client.admin.web:WebClient._ask")
async def admin_client_repeats_changes(self: WebClient, *request: Any) -> WebAnswer:
    """A change that got no answer is asked for again."""
    ask = original("admin_client_repeats_changes")
    try:
        answer: WebAnswer = await ask(self, *request)
    except OutcomeUnknown:
        answer = await ask(self, *request)
    return answer
