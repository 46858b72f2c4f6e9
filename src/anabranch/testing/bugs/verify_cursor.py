"""Planted bugs about cursors: of the rules in `anabranch.verify`, and one that they must find."""

from collections.abc import Iterator, Sequence

from anabranch.broker.consumer import Consumer
from anabranch.broker.subscription import Subscription
from anabranch.ids import Position
from anabranch.testing.planted import original, planted
from anabranch.verify.cursor_rules import AckedAgain, CursorRegress, _Window
from anabranch.verify.facts import News
from anabranch.verify.records import Ack, CursorAt, Event, Place

_CURSORS = "anabranch.verify.cursor_rules"


@planted("confirmed_ack_not_remembered", target=f"{_CURSORS}:AckedAgain._on_ack")
def confirmed_ack_not_remembered(self: AckedAgain, record: Ack, news: News) -> None:
    """The rule forgets which acknowledgements were confirmed."""
    del record, news


@planted("cumulative_ack_covers_its_last", target=f"{_CURSORS}:_Window.take_up_to")
def cumulative_ack_covers_its_last(self: _Window, last: Place) -> Iterator[Place]:
    """A cumulative acknowledgement is taken for one of its last message alone."""
    return self.take(last)


@planted("any_event_excuses_acks", target=f"{_CURSORS}:AckedAgain._on_event")
def any_event_excuses_acks(self: AckedAgain, record: Event, news: News) -> None:
    """Trouble of one subscription excuses all of them."""
    original("any_event_excuses_acks")(self, record._replace(sub=""), news)


@planted("crash_excuses_every_ack", target=f"{_CURSORS}:AckedAgain._on_event")
def crash_excuses_every_ack(self: AckedAgain, record: Event, news: News) -> None:
    """After a crash of the owner everything may come again, however long ago it was confirmed."""
    original("crash_excuses_every_ack")(self, record, news)
    if record.name == "server-killed":
        self._judge = lambda _: None  # type: ignore[method-assign,assignment]


@planted("cursor_compared_with_nothing", target=f"{_CURSORS}:CursorRegress._on_cursor")
def cursor_compared_with_nothing(self: CursorRegress, record: CursorAt, news: News) -> None:
    """Every position of a cursor is taken for its first."""
    del news
    self.checked += 1


@planted("cursors_share_a_position", target=f"{_CURSORS}:CursorRegress._on_cursor")
def cursors_share_a_position(self: CursorRegress, record: CursorAt, news: News) -> None:
    """The positions of all cursors are compared with one another."""
    one = record._replace(sub="", place=record.place._replace(partition=0))
    original("cursors_share_a_position")(self, one, news)


@planted(
    "redelivery_moves_the_cursor_back",
    target="anabranch.broker.subscription:Subscription.redeliver",
)
def redelivery_moves_the_cursor_back(
    self: Subscription, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
) -> None:
    """Who asks for everything unacknowledged again takes the last acknowledgement back."""
    mark_delete = self.cursor.mark_delete
    if positions is None and mark_delete.entry_id > 0:
        before = Position(mark_delete.ledger_id, mark_delete.entry_id - 1)
        self.cursor._state.reset(before)
    original("redelivery_moves_the_cursor_back")(self, consumer, positions, epoch)
