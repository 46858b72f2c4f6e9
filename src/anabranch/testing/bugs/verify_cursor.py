"""Planted bugs of the rules about cursors in `anabranch.verify`."""

from collections.abc import Iterator

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
