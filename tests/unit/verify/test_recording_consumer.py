"""A recording consumer claims an answer only where no older copy can be under way."""

from dataclasses import dataclass, field

import pytest

from anabranch.client import MessageId
from anabranch.errors import OutcomeUnknown
from anabranch.testing.made_histories import RUN
from anabranch.verify import payload
from anabranch.verify.recording_consumer import RecordingConsumer
from anabranch.verify.records import (
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    REDELIVERY_ASKED,
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    Event,
    Outcome,
    Place,
    Record,
    SubscriptionType,
)


@dataclass
class FakeMessage:
    """A message of the run, or something else."""

    id: MessageId
    value: bytes
    key: str | None = "k"


@dataclass
class FakeConsumer:
    """The SDK's consumer, as far as it is used."""

    subscription: str = "sub"
    attachments: int = 1
    is_connected: bool = True
    queued_messages: int = 0
    fails: bool = False
    asked_again: int = 0
    refused: list[MessageId] = field(default_factory=list)

    async def acknowledge(self, done: MessageId, *, cumulative: bool, wait: bool = False) -> None:
        if self.fails:
            raise OutcomeUnknown("no answer")

    def redeliver(self) -> None:
        self.asked_again += 1

    def negative_acknowledge(self, done: MessageId, *, delay_s: float) -> None:
        self.refused.append(done)

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        if self.fails:
            raise OutcomeUnknown("no answer")
        return MessageId(1, 9), MessageId(1, 4)


def message(entry: int, *, index: int = -1, size: int = 0, run: str = RUN) -> FakeMessage:
    data, _ = payload.build(run=run, producer=0, epoch=0, seq=entry, key="k")
    return FakeMessage(MessageId(1, entry, -1, index, size), data)


class Stage:
    """A recording consumer around a fake one, and what it recorded."""

    def __init__(
        self, kind: SubscriptionType = SubscriptionType.SHARED, *, knows_batch_index: bool = False
    ) -> None:
        self.consumer = FakeConsumer()
        self.records: list[Record] = []
        self.it = RecordingConsumer(
            self.consumer,  # type: ignore[arg-type]
            name="c",
            kind=kind,
            run=RUN,
            add=self.records.append,
            now_s=lambda: 7.0,
            knows_batch_index=knows_batch_index,
        )

    def get(self, entry: int, **batch: int) -> MessageId:
        found = message(entry, **batch)  # type: ignore[arg-type]
        self.it.record(found)  # type: ignore[arg-type]
        return found.id

    async def claims(self, done: MessageId, *, cumulative: bool = False) -> tuple[Place, ...]:
        """Acknowledge; return what was recorded as confirmed."""
        await self.it.acknowledge(done, cumulative=cumulative)
        ack = self.records[-1]
        assert isinstance(ack, Ack)
        assert ack.kind is (AckKind.CUMULATIVE if cumulative else AckKind.INDIVIDUAL)
        return ack.places if ack.outcome is Outcome.OK else ()


async def test_answer_is_recorded_as_confirmed_and_its_lack_as_unknown() -> None:
    stage = Stage()
    assert await stage.claims(stage.get(1)) == (Place(-1, 1, 1, -1),)
    stage.consumer.fails = True
    assert await stage.claims(stage.get(2)) == ()
    assert [type(record) for record in stage.records] == [Delivery, Ack, Delivery, Ack]


async def test_messages_under_way_when_redelivery_was_asked_for_are_never_claimed() -> None:
    stage = Stage()
    stage.it.redeliver()
    assert stage.consumer.asked_again == 1
    early = stage.get(1)
    stage.consumer.queued_messages = 1
    assert await stage.claims(early) == (), "it was under way, but its answer settles the question"
    queued = stage.get(2)
    assert await stage.claims(queued) == (), "it was in the queue when the answer came"
    assert await stage.claims(stage.get(3)) != ()
    assert sum(isinstance(r, Event) and r.name == REDELIVERY_ASKED for r in stage.records) == 1


async def test_answer_to_what_was_sent_before_the_question_settles_nothing() -> None:
    stage = Stage()
    stage.it._is_asking = True
    stage.it._asked = 1
    stage.it._answered(stage.get(1), 0, Outcome.OK, cumulative=False)
    assert stage.it._is_asking
    assert await stage.claims(stage.get(2)) == ()


async def test_ordered_subscription_drops_stale_messages_itself() -> None:
    stage = Stage(SubscriptionType.EXCLUSIVE)
    stage.it.redeliver()
    assert await stage.claims(stage.get(1), cumulative=True) == (Place(-1, 1, 1, -1),)


async def test_batch_counts_as_a_whole_where_the_broker_keeps_only_that() -> None:
    stage = Stage()
    first, second = stage.get(1, index=0, size=2), stage.get(1, index=1, size=2)
    assert await stage.claims(second) == ()
    assert await stage.claims(first) == (Place(-1, 1, 1, 0), Place(-1, 1, 1, 1))
    ordered = Stage(SubscriptionType.EXCLUSIVE)
    assert await ordered.claims(ordered.get(1, index=0, size=2), cumulative=True) == ()
    assert await ordered.claims(ordered.get(1, index=1, size=2), cumulative=True) != ()
    keeps = Stage(knows_batch_index=True)
    assert await keeps.claims(keeps.get(1, index=1, size=2)) == (Place(-1, 1, 1, 1),)


async def test_lost_connection_is_on_record_before_the_next_answer() -> None:
    stage = Stage()
    held = stage.get(1)
    stage.consumer.attachments += 1
    await stage.claims(held)
    names = [record.name if isinstance(record, Event) else "" for record in stage.records]
    assert names == ["", CONSUMER_CONNECTION_LOST, CONNECTION_RESTORED, ""]
    stage.consumer.is_connected = False
    stage.it.note_connection()
    stage.it.note_connection()
    stage.consumer.is_connected, stage.consumer.attachments = True, 3
    stage.it.note_connection()
    stage.it.note_connection()
    names = [record.name for record in stage.records[4:] if isinstance(record, Event)]
    assert names == [CONSUMER_CONNECTION_LOST, CONNECTION_RESTORED]


@pytest.mark.parametrize(
    "wrong",
    [
        message(1, run="ff" * 8),
        FakeMessage(MessageId(1, 1), b"nonsense"),
        FakeMessage(MessageId(1, 1), message(1).value, key="other"),
    ],
    ids=["run", "bytes", "key"],
)
def test_what_is_no_message_of_the_run_is_recorded_as_damaged(wrong: FakeMessage) -> None:
    stage = Stage()
    assert stage.it.record(wrong) is None  # type: ignore[arg-type]
    assert isinstance(stage.records[-1], Damaged)


async def test_cursor_is_recorded_with_when_it_was_asked_for() -> None:
    stage = Stage()
    await stage.it.snapshot()
    assert stage.records == [CursorAt("sub", Place(-1, 1, 4, -1), 7.0)]
    stage.consumer.fails = True
    await stage.it.snapshot()
    assert len(stage.records) == 1


async def test_refused_message_is_asked_for_and_unanswered_acks_are_unknown() -> None:
    stage = Stage()
    done = stage.get(1)
    stage.it.negative_acknowledge(done, delay_s=0.0)
    assert stage.consumer.refused == [done]
    rest = stage.get(1, index=1, size=2)
    assert await stage.claims(rest) == (), "the rest of its batch comes again with it"
    await stage.it.acknowledge_soon(done)
    last = stage.records[-1]
    assert isinstance(last, Ack)
    assert last.outcome is Outcome.UNKNOWN
