"""The topics this broker serves: opened on first use, one opening at a time for each."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, NamedTuple

from anabranch.broker.extensions import Extensions
from anabranch.broker.namespaces import Namespaces
from anabranch.broker.non_persistent import NonPersistentTopic
from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.errors import AnabranchError, Fenced, NotFound
from anabranch.ids import TopicName
from anabranch.managed_ledger import ManagedLedgers
from anabranch.ownership import Bundle, Ownership
from anabranch.policies.effective import EffectivePolicies
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
    ) -> None:
        self._managed_ledgers = managed_ledgers
        self._namespaces = namespaces
        self._ownership = ownership
        self._extensions = extensions
        self._tasks = tasks
        self._open: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        self._closing: dict[TopicName, asyncio.Future[None]] = {}
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
        if name in self._open:
            return True
        return name.is_persistent and await self._managed_ledgers.exists(name.managed_ledger_name)

    def get(self, name: TopicName) -> Topic | None:
        """The topic if it is open here."""
        return self._open.get(name)

    async def open(self, name: TopicName, *, create: bool) -> Topic:
        """Return the topic, opening it first if need be; several callers share one opening.

        Raises:
            Refused: if the topic, its namespace or its kind is not there.
        """
        if self._stopped:
            raise Refused(ServerError.ServiceNotReady, "the broker is being stopped")
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
            # A partition beyond the last one is refused even if it was there once.
            create = await self._namespaces.may_create(name) and create
            policies = await self._namespaces.policies.effective(name)
            await self._ownership.require(name)
            if name.is_persistent:
                topic = await self._load_stored(name, policies, create)
            elif create or name.partition >= 0:
                topic = NonPersistentTopic(
                    name,
                    policies,
                    clock=self._managed_ledgers.clock,
                    tasks=self._tasks,
                    on_failed=self._drop_failed,
                )
            else:
                raise Refused(ServerError.TopicNotFound, f"Topic {name} does not exist")
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

    async def _load_stored(
        self, name: TopicName, policies: EffectivePolicies, create: bool
    ) -> Topic:
        try:
            ledger = await self._managed_ledgers.open(name.managed_ledger_name, create=create)
        except NotFound:
            raise Refused(ServerError.TopicNotFound, f"Topic {name} does not exist") from None
        if not self._ownership.owns(name):
            await ledger.close()
            raise Fenced(f"{name} went to another broker while it was being opened")
        topic = Topic(name, ledger, policies, tasks=self._tasks, on_failed=self._drop_failed)
        await topic.prepare()
        return topic

    # --- policies ------------------------------------------------------------------------------

    def policies_changed(self, name: str | None) -> None:
        """Bring the topics that a changed document concerns up to date; all of them for None."""
        for topic in self.all():
            whole = f"{topic.name.domain}://{topic.name.namespace_name}/"
            if name in (None, topic.name.namespace_name, whole + topic.name.partitioned_local):
                self._tasks.spawn(f"policies of {topic.name}", self._refresh(topic))

    async def _refresh(self, topic: Topic) -> None:
        try:
            policies = await self._namespaces.policies.effective(topic.name)
        except AnabranchError as error:
            _log.warning("policies_not_read", topic=str(topic.name), error=str(error))
            return
        if not topic.closed:
            await topic.follow(policies)

    # --- ending --------------------------------------------------------------------------------

    async def create(self, name: TopicName) -> Topic:
        """Return a topic that an operator wants to be there, whatever clients may create.

        Raises:
            Refused: if its namespace is not there.
        """
        await self._namespaces.require(name)
        if name.is_persistent:
            await self._managed_ledgers.open(name.managed_ledger_name, create=True)
        return await self.open(name, create=not name.is_persistent)

    async def unload(self, name: TopicName) -> bool:
        """Close a topic in good order; clients come back and open it anew. False if it was not."""
        topic = self._open.get(name)
        if topic is None:
            return False
        topic.disconnect_clients()
        await asyncio.shield(self._end(topic, topic.close()))
        return True

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Remove a topic with everything it holds.

        Raises:
            Refused: if it is not there, or has clients and `force` is not set.
        """
        topic = await self.open(name, create=False)
        attached = any(each.consumers for each in topic.subscriptions.values())
        if (topic.producers or attached) and not force:
            raise Refused(ServerError.ConsumerBusy, "Topic has active producers/subscriptions")
        topic.disconnect_clients()
        await asyncio.shield(self._end(topic, topic.delete()))

    async def stop(self, bundle: Bundle) -> list[Topic]:
        """Close the topics of a bundle that is opened no more; their clients still wait."""
        while opening := [o.done for name, o in self._opening.items() if bundle.holds(name)]:
            await asyncio.wait(opening)
        stopped = self.of(bundle)
        ends = [self._end(topic, self._close_quietly(topic, topic.stop())) for topic in stopped]
        if ends:
            await asyncio.wait(ends)
        return stopped

    def _end(self, topic: Topic, ending: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Serve a topic no more; whoever wants it meanwhile waits until it has ended."""
        if (before := self._closing.get(topic.name)) is not None:
            ending.close()  # somebody else ends it already
            return before
        self._forget(topic)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Who asked for it may be gone when it fails; that is no error by itself.
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

        async def ended() -> None:
            try:
                await ending
            except AnabranchError as error:
                done.set_exception(error)
            else:
                done.set_result(None)
            finally:
                del self._closing[topic.name]
                done.cancel()

        self._closing[topic.name] = done
        self._tasks.spawn(f"end {topic.name}", ended())
        return done

    def _drop_failed(self, topic: Topic) -> None:
        self._end(topic, self._close_quietly(topic, topic.ledger.close()))

    async def _close_quietly(self, topic: Topic, closing: Awaitable[None]) -> None:
        try:
            await closing
        except AnabranchError as error:
            _log.warning("topic_not_closed", topic=str(topic.name), error=str(error))

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
