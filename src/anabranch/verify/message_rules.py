"""Rules about single messages: C1 lost, C2 phantom, C3 aborted read, C4 stored twice. Pure."""

from collections import deque
from collections.abc import Mapping

from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import LATE_SEND_S_MAX
from anabranch.verify.records import Damaged, Delivery, MessageId, Record
from anabranch.verify.rule import Handler, Rule
from anabranch.verify.sends import mask_of
from anabranch.verify.tables import BLOCK_BITS, set_bits


class Lost(Rule):
    """C1: an acknowledged message that a subscription, older than its send, never got."""

    id = "C1"
    title = "lost"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.undecided = 0

    def conclude(self) -> None:
        """Compare what was acknowledged with what each subscription was given."""
        for subscription, line, number, block, owed, got in self.facts.owed():
            drained_at = subscription.drained_at
            self.checked += (owed & got).bit_count()
            for index in set_bits(owed & ~got):
                if drained_at is None or block.ended[index] > drained_at:
                    self.undecided += 1
                    continue
                self.checked += 1
                self.report(
                    f"acknowledged, never delivered to {subscription.name!r}",
                    block.ended[index],
                    message=MessageId(line.producer, line.epoch, number << BLOCK_BITS | index),
                    sub=subscription.name,
                )


class Phantom(Rule):
    """C2: a delivery of something that was never sent, or whose bytes are damaged."""

    id = "C2"
    title = "phantom"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._doubtful: deque[Delivery] = deque()

    def handlers(self) -> Mapping[type[Record], Handler]:
        """See `Rule.handlers`."""
        return {Delivery: self._on_delivery, Damaged: self._on_damaged}

    def _on_damaged(self, record: Damaged, _: News) -> None:
        self.checked += 1
        where = {"sub": record.sub, "places": (record.place,)}
        self.report(f"not a message of this run: {record.error}", record.t, **where)

    def _on_delivery(self, record: Delivery, _: News) -> None:
        self.checked += 1
        while self._doubtful and self._doubtful[0].t < record.t - LATE_SEND_S_MAX:
            self._judge(self._doubtful.popleft())
        if self._doubt(record):
            # Judged again later: two files are merged by time stamps of equal precision.
            self._doubtful.append(record)

    def _doubt(self, record: Delivery) -> str:
        line = self.facts.lines.get((record.producer, record.epoch))
        found = line.find(record.seq) if line is not None else None
        if found is None:
            return "delivered, never sent"
        if found[0].begun[found[1]] > record.t + LATE_SEND_S_MAX:
            return "delivered before it was sent"
        if found[0].crc[found[1]] != record.crc:
            return f"delivered with checksum {record.crc:#010x}, another than was sent"
        return ""

    def conclude(self) -> None:
        """Report the last deliveries that no send explains."""
        for record in self._doubtful:
            self._judge(record)

    def _judge(self, record: Delivery) -> None:
        if doubt := self._doubt(record):
            self.report(
                doubt,
                record.t,
                message=MessageId(record.producer, record.epoch, record.seq),
                key=record.key,
                sub=record.sub,
                places=(record.place,),
            )


class AbortedRead(Rule):
    """C3: a delivery of a message whose every attempt certainly failed."""

    id = "C3"
    title = "aborted read"

    def conclude(self) -> None:
        """Look for failed sends among the deliveries."""
        for line in self.facts.lines.values():
            for number, block in line.each_block():
                failed = mask_of(block.failed) & ~mask_of(block.ok)
                failed &= ~line.unknown_mask(number, block)
                self.checked += failed.bit_count()
                for subscription in self.facts.subscriptions.values() if failed else ():
                    for index in set_bits(failed & subscription.got(line, number)):
                        seq = number << BLOCK_BITS | index
                        self.report(
                            f"its send failed, yet {subscription.name!r} got it",
                            block.ended[index],
                            message=MessageId(line.producer, line.epoch, seq),
                            sub=subscription.name,
                        )


class StoredTwice(Rule):
    """C4: one message at two places. Tolerated without dedup where a send was in doubt."""

    id = "C4"
    title = "stored twice"

    def conclude(self) -> None:
        """Judge every message that was seen at more than one place."""
        facts = self.facts
        self.checked = facts.counts.placed
        for key, further in facts.further_places.items():
            name = MessageId(*key)
            line = facts.lines[name.producer, name.epoch]
            found = line.find(name.seq)
            assert found is not None, "a place is kept only for a message that was sent"
            block, index = found
            in_doubt = line.is_unknown(name.seq, block, index) or facts.was_disrupted(
                name.producer, block.begun[index], block.ended[index]
            )
            if in_doubt and not facts.dedup:
                self.tolerated += 1
                continue
            why = "with deduplication on" if facts.dedup else "without any attempt in doubt"
            codes = (block.places[index], *further)
            self.report(
                f"stored at {len(codes)} places {why}",
                block.ended[index] or block.begun[index],
                message=name,
                places=tuple(map(facts.place_codes.decode, codes)),
            )
