"""The topics this broker serves: opened on first use, one opening at a time for each."""

import asyncio
from collections.abc import Awaitable, Coroutine
from enum import IntEnum
from typing import Any, NamedTuple

from anabranch.broker.extensions import Extensions
from anabranch.broker.limits import TOPICS_PER_SLICE
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.namespaces import Namespaces
from anabranch.broker.non_persistent import NonPersistentTopic
from anabranch.broker.policies.storing import quorums_of
from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.errors import AlreadyClosed, AnabranchError, Fenced, NotFound
from anabranch.ids import TopicName
from anabranch.managed_ledger import ManagedLedgers
from anabranch.ownership import Bundle, Ownership
from anabranch.policies.effective import EffectivePolicies
from anabranch.runtime import slices
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger
from anabranch.wire import ServerError

_log = get_logger("broker")


class _Wish(IntEnum):
    """What is to happen with a topic that is not there; who wishes more is tried again."""

    FIND = 0
    CREATE = 1
    """If its namespace lets clients create topics."""
    CREATE_ANYWAY = 2


class _Opening(NamedTuple):
    wish: _Wish
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
        mishaps: Mishaps,
    ) -> None:
        self._managed_ledgers = managed_ledgers
        self._namespaces = namespaces
        self._ownership = ownership
        self._extensions = extensions
        self._tasks = tasks
        self._mishaps = mishaps
        self._open: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        self._closing: dict[TopicName, asyncio.Future[None]] = {}
        self._stopped = False
        self.ended = 0
        """How many were closed so far."""

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> list[Topic]:
        """Every open topic."""
        return list(self._open.values())

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
        return await self._opened(name, _Wish.CREATE if create else _Wish.FIND)

    async def create(self, name: TopicName) -> Topic:
        """Return a topic that an operator wants to be there, whatever clients may create.

        Raises:
            Refused: if its namespace is not there, or it is a partition beyond the last one.
        """
        return await self._opened(name, _Wish.CREATE_ANYWAY)

    async def declare(self, name: TopicName) -> None:
        """Let a topic exist for whoever owns it, without opening it.

        Raises:
            Refused: if its namespace is not there.
        """
        await self._namespaces.require(name)
        if name.is_persistent:
            await self._managed_ledgers.declare(name.managed_ledger_name)

    async def _opened(self, name: TopicName, wish: _Wish) -> Topic:
        if self._stopped:
            raise Refused(ServerError.ServiceNotReady, "the broker is being stopped")
        while True:
            topic = self._open.get(name)
            if topic is not None:
                return topic
            opening = self._opening.get(name)
            if opening is None:
                opening = self._begin_opening(name, wish)
            try:
                return await asyncio.shield(opening.done)
            except Refused as error:
                # Somebody who does not create topics was first; now it is this caller's turn.
                if error.code != ServerError.TopicNotFound or wish <= opening.wish:
                    raise

    def _begin_opening(self, name: TopicName, wish: _Wish) -> _Opening:
        done: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting any more when the opening fails; that is no error by itself.
        done.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        opening = self._opening[name] = _Opening(wish, done)
        self._tasks.spawn(f"open {name}", self._load(name, wish, done))
        return opening

    async def _load(self, name: TopicName, wish: _Wish, opening: asyncio.Future[Topic]) -> None:
        try:
            closing = self._closing.get(name)
            if closing is not None:
                await asyncio.wait([closing])
            await self._namespaces.require(name)
            # A partition beyond the last one is refused even if it was there once.
            may_create = await self._namespaces.may_create(name)
            create = wish is _Wish.CREATE_ANYWAY or (wish is _Wish.CREATE and may_create)
            policies = await self._namespaces.policies.effective(name)
            await self._ownership.require(name)
            if name.is_persistent:
                topic = await self._load_stored(name, policies, create)
            else:
                topic = await self._make(name, policies, create)
        except AnabranchError as error:
            _log.warning("topic_not_opened", topic=str(name), error=str(error))
            opening.set_exception(error)
        except Exception as error:  # noqa: BLE001 - shown, counted, and those who wait are told
            self._mishaps.report(f"opening of {name}", error)
            opening.set_exception(AlreadyClosed(f"{name} could not be opened"))
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
        if create and not await self.exists(name):
            await self._namespaces.require_room(name)
        try:
            ledger = await self._managed_ledgers.open(
                name.managed_ledger_name, create=create, quorums=quorums_of(policies.persistence)
            )
        except NotFound:
            raise Refused(ServerError.TopicNotFound, f"Topic {name} does not exist") from None
        topic = Topic(
            name,
            ledger,
            policies,
            tasks=self._tasks,
            mishaps=self._mishaps,
            on_failed=self._drop_failed,
        )
        try:
            self._refuse_if_lost(name)
            await topic.prepare()
            # Nobody has told it of changes before it is among the open ones.
            while (now := await self._namespaces.policies.effective(name)) != topic.policies:
                await topic.follow(now)
            self._refuse_if_lost(name)
            if topic.closed:
                raise AlreadyClosed(f"{name} failed while it was being opened")
        except BaseException:
            topic.disconnect_clients()
            await self._close_quietly(topic, ledger.close())
            raise
        return topic

    def _refuse_if_lost(self, name: TopicName) -> None:
        if not self._ownership.owns(name):
            raise Fenced(f"{name} went to another broker while it was being opened")

    async def _make(self, name: TopicName, policies: EffectivePolicies, create: bool) -> Topic:
        if not create and not await self._namespaces.is_declared(name):
            raise Refused(ServerError.TopicNotFound, f"Topic {name} does not exist")
        return NonPersistentTopic(
            name,
            policies,
            clock=self._managed_ledgers.clock,
            tasks=self._tasks,
            mishaps=self._mishaps,
            on_failed=self._drop_failed,
        )

    # --- policies ------------------------------------------------------------------------------

    def policies_changed(self, name: str | None) -> None:
        """Bring the topics that a changed document concerns up to date; all of them for None."""
        self._tasks.spawn(f"policies of {name or 'all topics'}", self._refresh_all(name))

    async def _refresh_all(self, name: str | None) -> None:
        async for topic in slices.in_slices(self.all(), TOPICS_PER_SLICE):
            whole = f"{topic.name.domain}://{topic.name.namespace_name}/"
            if name in (None, topic.name.namespace_name, whole + topic.name.partitioned_local):
                contained = self._mishaps.contained(self._tasks, topic.fail)
                contained.spawn(f"policies of {topic.name}", self._refresh(topic))

    async def _refresh(self, topic: Topic) -> None:
        try:
            policies = await self._namespaces.policies.effective(topic.name)
        except AnabranchError as error:
            _log.warning("policies_not_read", topic=str(topic.name), error=str(error))
            return
        if not topic.closed:
            await topic.follow(policies)

    # --- ending --------------------------------------------------------------------------------

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
        while self._open.get(name) is not topic:  # ended by somebody else; perhaps still stored
            try:
                topic = await self.open(name, create=False)
            except Refused as refused:
                if refused.code != ServerError.TopicNotFound:
                    raise
                return  # deleted since
        attached = any(each.consumers for each in topic.subscriptions.values())
        if (topic.producers or attached) and not force:
            raise Refused(ServerError.ConsumerBusy, "Topic has active producers/subscriptions")
        topic.disconnect_clients()
        await asyncio.shield(self._end(topic, topic.delete()))
        await self._namespaces.policies.forget(name)

    async def fail_all(self, topics: list[Topic], bundle: Bundle, error: Exception) -> None:
        """Serve those of the topics no more that are in a bundle; clients find them anew."""
        async for topic in slices.in_slices(topics, TOPICS_PER_SLICE):
            if bundle.holds(topic.name):
                topic.fail(error)

    async def stop(self, bundle: Bundle) -> list[Topic]:
        """Close the topics of a bundle that is opened no more; their clients still wait."""
        while opening := [o.done for name, o in self._opening.items() if bundle.holds(name)]:
            await asyncio.wait(opening)
        stopped = []
        async for topic in slices.in_slices(self.all(), TOPICS_PER_SLICE):
            if bundle.holds(topic.name) and self._open.get(topic.name) is topic:
                self._end(topic, self._close_quietly(topic, topic.stop()))
                stopped.append(topic)
        # Also those that were on their way out: they write until they have ended.
        closing = list(self._closing.items())
        async for name, done in slices.in_slices(closing, TOPICS_PER_SLICE):
            if bundle.holds(name) and not done.done():
                await asyncio.wait([done])
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
            self.ended += 1
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
