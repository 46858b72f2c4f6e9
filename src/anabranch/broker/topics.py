"""The topics this broker serves: opened on first use, one opening at a time for each."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from anabranch.broker.extensions import Extensions
from anabranch.broker.namespaces import Namespaces
from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.errors import AnabranchError, Fenced, NotFound
from anabranch.ids import TopicName
from anabranch.managed_ledger import ManagedLedgers
from anabranch.ownership import Bundle, Ownership
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger
from anabranch.wire import ServerError

_log = get_logger("broker")


class _Opening(NamedTuple):
    create: bool
    done: asyncio.Future[Topic]


class Topics:
    """Opens, keeps and closes topics."""

    def __init__(
        self,
        managed_ledgers: ManagedLedgers,
        namespaces: Namespaces,
        *,
        ownership: Ownership,
        extensions: Extensions,
        tasks: Tasks,
        auto_create: bool,
    ) -> None:
        self._managed_ledgers = managed_ledgers
        self._namespaces = namespaces
        self._ownership = ownership
        self._extensions = extensions
        self._tasks = tasks
        self._auto_create = auto_create
        self._open: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        self._closing: dict[TopicName, asyncio.Task[None]] = {}
        self._stopped = False

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> list[Topic]:
        """Every open topic."""
        return list(self._open.values())

    def of(self, bundle: Bundle) -> list[Topic]:
        """Every open topic of a bundle."""
        return [topic for name, topic in self._open.items() if bundle.holds(name)]

    async def exists(self, name: TopicName) -> bool:
        """Whether a topic was created, here or elsewhere."""
        return await self._managed_ledgers.exists(name.managed_ledger_name)

    async def open(self, name: TopicName, *, create: bool) -> Topic:
        """Return the topic, opening it first if need be; several callers share one opening.

        Raises:
            Refused: if the topic, its namespace or its kind is not there.
        """
        if not name.is_persistent:
            raise Refused(
                ServerError.NotAllowedError, f"non-persistent topics are not served: {name}"
            )
        if self._stopped:
            raise Refused(ServerError.ServiceNotReady, "the broker is being stopped")
        create = create and self._auto_create
        while True:
            topic = self._open.get(name)
            if topic is not None:
                return topic
            opening = self._opening.get(name)
            if opening is None:
                opening = self._begin_opening(name, create)
            try:
                return await asyncio.shield(opening.done)
            except Refused as error:
                # Somebody who does not create topics was first; now it is this caller's turn.
                if error.code != ServerError.TopicNotFound or opening.create or not create:
                    raise

    def _begin_opening(self, name: TopicName, create: bool) -> _Opening:
        done: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when the opening fails; that is no error by itself.
        done.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        opening = self._opening[name] = _Opening(create, done)
        self._tasks.spawn(f"open {name}", self._load(name, create, done))
        return opening

    async def _load(self, name: TopicName, create: bool, opening: asyncio.Future[Topic]) -> None:
        try:
            closing = self._closing.get(name)
            if closing is not None:
                await asyncio.wait([closing])
            await self._namespaces.require(name)
            await self._ownership.require(name)
            try:
                ledger = await self._managed_ledgers.open(name.managed_ledger_name, create=create)
            except NotFound:
                raise Refused(ServerError.TopicNotFound, f"Topic {name} does not exist") from None
            if not self._ownership.owns(name):
                await ledger.close()
                raise Fenced(f"{name} went to another broker while it was being opened")
            topic = Topic(name, ledger, tasks=self._tasks, on_failed=self._drop_failed)
        except AnabranchError as error:
            _log.warning("topic_not_opened", topic=str(name), error=str(error))
            opening.set_exception(error)
        else:
            self._open[name] = topic
            for observer in self._extensions.observers:
                observer.topic_opened(topic)
            opening.set_result(topic)
        finally:
            del self._opening[name]
            if not opening.done():
                opening.cancel()

    async def stop(self, bundle: Bundle) -> list[Topic]:
        """Close the topics of a bundle that is opened no more; their clients still wait."""
        while opening := [o.done for name, o in self._opening.items() if bundle.holds(name)]:
            await asyncio.wait(opening)
        stopped = self.of(bundle)
        for topic in stopped:
            self._forget(topic)
            self._closing[topic.name] = self._tasks.spawn(
                f"stop {topic.name}", self._close(topic, topic.stop())
            )
        for topic in stopped:
            if topic.name in self._closing:
                await asyncio.wait([self._closing[topic.name]])
        return stopped

    def _drop_failed(self, topic: Topic) -> None:
        self._forget(topic)
        self._closing[topic.name] = self._tasks.spawn(
            f"close {topic.name}", self._close(topic, topic.ledger.close())
        )

    async def _close(self, topic: Topic, closing: Awaitable[None]) -> None:
        try:
            await closing
        except AnabranchError as error:
            _log.warning("topic_not_closed", topic=str(topic.name), error=str(error))
        finally:
            del self._closing[topic.name]

    def _forget(self, topic: Topic) -> None:
        if self._open.get(topic.name) is topic:
            del self._open[topic.name]
            for observer in self._extensions.observers:
                observer.topic_closed(topic)

    async def close(self) -> None:
        """Close every topic; what was acknowledged to clients is durable afterwards."""
        self._stopped = True
        for closing in list(self._closing.values()):
            await asyncio.wait([closing])
        for topic in self.all():
            self._forget(topic)
            try:
                await topic.close()
            except AnabranchError as error:
                _log.warning("topic_not_closed", topic=str(topic.name), error=str(error))
