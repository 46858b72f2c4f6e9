"""Messages that a consumer has again: refused ones after a while, or never, if too often."""

import asyncio
from typing import TYPE_CHECKING

from anabranch.client.later import Later
from anabranch.client.letters import Hopeless, Letters
from anabranch.client.limits import BURY_AGAIN_S_MAX, BURY_AGAIN_S_MIN
from anabranch.client.message import Message, MessageId
from anabranch.errors import AnabranchError
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.client.consumer import TopicConsumer

_log = get_logger("client")


class Again:
    """What one consumer refused, and what it is given for the last time."""

    def __init__(self, consumer: "TopicConsumer") -> None:
        self._consumer = consumer
        self._later = Later()
        self._timer: asyncio.TimerHandle | None = None
        self._letters: Letters | None = None
        self._hopeless: Hopeless | None = None
        self._not_buried = 0
        """How often in a row."""

    def give_up_with(self, letters: Letters) -> None:
        """Put messages that came too often into a dead-letter topic."""
        self._letters = letters
        self._hopeless = Hopeless(letters.redeliveries_max)

    def arrived(self, messages: list[Message]) -> list[Message]:
        """Messages came; returns those to be shown."""
        if self._hopeless is None or not self._hopeless.look_at(messages):
            return messages
        self._give_up(self._hopeless.take(messages[0].id.position))
        return []

    def refused(self, messages: list[MessageId], delay_s: float) -> None:
        """Have messages again later."""
        loop = asyncio.get_running_loop()
        for each in messages:
            self._later.add(each, loop.time() + delay_s)
        self._watch(loop)

    def done_with(self, message: MessageId) -> None:
        """The message need not come again."""
        if len(self._later):
            self._later.drop(message)
        if self._hopeless is not None:
            self._hopeless.drop(message)

    def clear(self) -> None:
        """Everything unacknowledged comes again by itself."""
        self._later.clear()
        if self._hopeless is not None:
            self._hopeless.clear()

    def stop(self) -> None:
        """The consumer is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop()
        if (due_s := self._later.next_s()) is not None:
            self._timer = loop.call_at(due_s, self._ask_for_due)

    def _ask_for_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        due = self._later.take(loop.time())
        self._watch(loop)
        if self._hopeless is not None:
            given_up = [message for place in due for message in self._hopeless.take(place)]
            self._give_up(given_up)
            buried = {message.id.position for message in given_up}
            due = [place for place in due if place not in buried]
        if due:
            self._consumer.ask_again(due)

    def _give_up(self, messages: list[Message]) -> None:
        tasks = self._consumer.client.tasks
        if messages and not tasks.closed:
            tasks.spawn(f"dead letters of {self._consumer.topic}", self._bury(messages))

    async def _bury(self, messages: list[Message]) -> None:
        assert self._letters is not None
        failed: list[Message] = []
        for message in messages:
            try:
                await self._letters.bury(message)
                await self._consumer.acknowledge(message)
            except AnabranchError as error:
                if self._consumer.closed:
                    return  # it comes again to whoever is next
                topic = str(self._consumer.topic)
                _log.warning("dead_letter_not_stored", topic=topic, error=str(error))
                failed.append(message)
        if self._consumer.closed:
            return
        delay_s = min(BURY_AGAIN_S_MIN * 2 ** min(self._not_buried, 10), BURY_AGAIN_S_MAX)
        self._not_buried = self._not_buried + 1 if failed else 0
        for message in failed:
            self._consumer.negative_acknowledge(message, delay_s=delay_s)
