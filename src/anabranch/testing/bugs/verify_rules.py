"""Planted bugs of the rules in `anabranch.verify`: each makes one of them blind, or too strict."""

from typing import Any

from anabranch.testing.planted import original, planted
from anabranch.verify.facts import Facts, News
from anabranch.verify.message_rules import AbortedRead, Lost, Phantom
from anabranch.verify.order_rules import DivergentPlace, KeyOrder, PlaceOrder, Stuck
from anabranch.verify.records import Damaged, Delivery, Outcome, Place, Send, Sent, Subscribed
from anabranch.verify.tables import NO_PLACE


@planted("loss_is_left_undecided", target="anabranch.verify.message_rules:Lost.conclude")
def loss_is_left_undecided(self: Lost) -> None:
    """A missing message is never called lost, however well its subscription was drained."""
    subscriptions = list(self.facts.subscriptions.values())
    times = [subscription.drained_at for subscription in subscriptions]
    for subscription in subscriptions:
        subscription.drained_at = None
    original("loss_is_left_undecided")(self)
    for subscription, drained_at in zip(subscriptions, times, strict=True):
        subscription.drained_at = drained_at


@planted("subscription_is_owed_its_past", target="anabranch.verify.facts:Facts._subscribed")
def subscription_is_owed_its_past(self: Facts, record: Subscribed) -> None:
    """A subscription must get also what was sent before it was made."""
    original("subscription_is_owed_its_past")(self, record._replace(t=0.0))


@planted("unsent_is_believed", target="anabranch.verify.message_rules:Phantom._doubt")
def unsent_is_believed(self: Phantom, record: Delivery) -> str:
    """A delivery that no send explains is taken for granted."""
    doubt = str(original("unsent_is_believed")(self, record))
    return "" if "never sent" in doubt else doubt


@planted("content_is_not_compared", target="anabranch.verify.message_rules:Phantom._doubt")
def content_is_not_compared(self: Phantom, record: Delivery) -> str:
    """A message may arrive with other bytes than were sent."""
    doubt = str(original("content_is_not_compared")(self, record))
    return "" if "another than was sent" in doubt else doubt


@planted("damage_is_only_counted", target="anabranch.verify.message_rules:Phantom._on_damaged")
def damage_is_only_counted(self: Phantom, record: Damaged, _: News) -> None:
    """Bytes that are no message of the run are not reported."""
    del record
    self.checked += 1


@planted(
    "failed_sends_are_not_looked_for", target="anabranch.verify.message_rules:AbortedRead.conclude"
)
def failed_sends_are_not_looked_for(self: AbortedRead) -> None:
    """Nobody asks whether a failed send arrived."""
    del self


@planted("second_attempt_is_not_counted", target="anabranch.verify.facts:Facts._send")
def second_attempt_is_not_counted(self: Facts, record: Send) -> None:
    """A message that was sent again is known by its first attempt only."""
    known = self.__dict__.setdefault("first_attempts", set())
    name = record.producer, record.epoch, record.seq
    if name not in known:
        known.add(name)
        original("second_attempt_is_not_counted")(self, record)


@planted("second_place_is_forgotten", target="anabranch.verify.facts:Facts._stored_at")
def second_place_is_forgotten(self: Facts, record: Sent | Delivery, place: Place) -> bool:
    """Only the first place of a message is kept."""
    line = self.lines.get((record.producer, record.epoch))
    found = line.find(record.seq) if line is not None else None
    if found is not None and found[0].places[found[1]] != NO_PLACE:
        return False
    return bool(original("second_place_is_forgotten")(self, record, place))


@planted("key_order_is_only_counted", target="anabranch.verify.order_rules:KeyOrder._on_delivery")
def key_order_is_only_counted(self: KeyOrder, record: Delivery, _: News) -> None:
    """Deliveries in any order are fine."""
    del record
    self.checked += 1


@planted("key_order_per_consumer", target="anabranch.verify.order_rules:KeyOrder._on_delivery")
def key_order_per_consumer(self: KeyOrder, record: Delivery, news: News) -> None:
    """What two consumers of one subscription got is not compared."""
    both: Any = (record.producer, record.consumer)
    original("key_order_per_consumer")(self, record._replace(producer=both), news)


@planted("key_order_over_all_keys", target="anabranch.verify.order_rules:KeyOrder._on_delivery")
def key_order_over_all_keys(self: KeyOrder, record: Delivery, news: News) -> None:
    """Order is asked of a producer as a whole, which nobody promised."""
    original("key_order_over_all_keys")(self, record._replace(key=""), news)


@planted(
    "places_of_receipts_are_ignored", target="anabranch.verify.order_rules:PlaceOrder._on_sent"
)
def places_of_receipts_are_ignored(self: PlaceOrder, record: Sent, news: News) -> None:
    """Only the order of seq is looked at."""
    if record.place is not None:
        record = record._replace(place=Place(record.place.partition, 0, self.checked, -1))
    original("places_of_receipts_are_ignored")(self, record, news)


@planted("seqs_of_receipts_are_ignored", target="anabranch.verify.order_rules:PlaceOrder._on_sent")
def seqs_of_receipts_are_ignored(self: PlaceOrder, record: Sent, news: News) -> None:
    """Only the order of places is looked at."""
    original("seqs_of_receipts_are_ignored")(self, record._replace(seq=self.checked), news)


@planted(
    "divergence_is_only_counted", target="anabranch.verify.order_rules:DivergentPlace._on_place"
)
def divergence_is_only_counted(self: DivergentPlace, record: Sent | Delivery, _: News) -> None:
    """Two messages may be at one place."""
    self.checked += record.place is not None


@planted("windows_are_everywhere", target="anabranch.verify.facts:Facts.in_window")
def windows_are_everywhere(self: Facts, begun: float, ended: float) -> bool:
    """Every wait is excused by a window that nobody declared."""
    del self, begun, ended
    return True


@planted("windows_are_not_known", target="anabranch.verify.facts:Facts.in_window")
def windows_are_not_known(self: Facts, begun: float, ended: float) -> bool:
    """A declared window excuses nothing."""
    del self, begun, ended
    return False


@planted("timeouts_are_progress", target="anabranch.verify.order_rules:Stuck._on_sent")
def timeouts_are_progress(self: Stuck, record: Sent, news: News) -> None:
    """A send that timed out ends a wait as well as a receipt does."""
    original("timeouts_are_progress")(self, record._replace(outcome=Outcome.OK), news)
