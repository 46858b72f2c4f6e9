"""What a reader of the scenario `standalone` may see, and the reader that wanders about.

A reader holds nothing back: what the subscriptions are done with may be trimmed under it, but only
whole ledgers. Within a ledger nothing that was acknowledged to its producer is left out, a place
always holds the same message, and after a seek the message named comes first.
"""

import asyncio
from collections.abc import Callable, Container
from typing import Final

from anabranch.client import BrokerRefused, Message, MessageId, Reader
from anabranch.errors import OutcomeUnknown
from anabranch.ids import Position
from anabranch.runtime import Runtime

SEEK_ONE_OF: Final = 40
SEEK_BACK_MAX: Final = 30
"""How many messages a seek goes back at most."""
PATIENCE_S: Final = 2.0
Reach = Callable[[str], None]


class SeenInOrder:
    """One reader's way through the topic. Shared: what the places hold."""

    def __init__(self, stored: Container[Position], held: dict[MessageId, bytes]) -> None:
        self._stored = stored
        """Entries with an acknowledged message."""
        self._held = held
        self._last: MessageId | None = None
        self._sought: MessageId | None = None
        self.way: list[MessageId] = []
        """What was read, newest last."""

    def moved(self, to: MessageId | None) -> None:
        """A seek was answered (or is in doubt: None); `to` comes next."""
        self._sought, self._last = to, None

    def see(self, message: Message) -> None:
        """Judge the next message."""
        found = message.id
        before = self._held.setdefault(found, message.value)
        assert before == message.value, f"{found} is not what it was"
        if self._sought is not None and found.ledger_id == self._sought.ledger_id:
            assert found == self._sought, f"sought {self._sought}, got {found}"
        if self._last is not None:
            self._check_step(self._last, found)
        self._sought, self._last = None, found
        self.way.append(found)

    def _check_step(self, last: MessageId, found: MessageId) -> None:
        assert found > last, f"{found} came after {last}"
        if found.position == last.position:
            assert found.batch_index == last.batch_index + 1, f"{found} came after {last}"
            return
        first = 0
        if found.ledger_id == last.ledger_id:
            assert last.batch_index + 1 >= last.batch_size, f"{found} came after {last}"
            first = last.entry_id + 1
        for entry_id in range(first, found.entry_id):
            passed = Position(found.ledger_id, entry_id)
            assert passed not in self._stored, f"{passed} was left out between {last} and {found}"


async def wander(reader: Reader, seen: SeenInOrder, runtime: Runtime, reach: Reach) -> None:
    """Read on, and now and then go back; until told to stop by being crashed."""
    entropy = runtime.entropy
    while True:
        if seen.way and entropy.below(SEEK_ONE_OF) == 0:
            back = seen.way[-1 - entropy.below(min(len(seen.way), SEEK_BACK_MAX))]
            try:
                await reader.seek(back)
            except (OutcomeUnknown, BrokerRefused):
                reach("seek in doubt")
                seen.moved(None)
            else:
                reach("seek answered")
                seen.moved(back)
        try:
            async with asyncio.timeout(entropy.uniform(0.0, PATIENCE_S)):
                message = await reader.read_next()
        except TimeoutError:
            continue
        seen.see(message)


async def read_all(reader: Reader, seen: SeenInOrder) -> bool:
    """Read until nothing is left; return whether the topic is empty then."""
    while True:
        try:
            if not await reader.has_message_available():
                last, _ = await reader.parts[0].last_message_id()
                return last.entry_id < 0
        except (OutcomeUnknown, BrokerRefused):
            await asyncio.sleep(PATIENCE_S)
            continue
        seen.see(await reader.read_next())
