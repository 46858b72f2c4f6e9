"""Bugs that somebody's request met: counted, shown with their traceback, and kept to few.

Whatever is raised outside the error tree is a mistake of this program. It must not be a weapon: a
connection or a topic is given up for it, which clients open anew from what is stored, and the
process goes on. Tests and simulations do not go on: there `fail` ends the run with the first one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.errors import AnabranchError
from anabranch.runtime.tasks import FailureSink, Tasks
from anabranch.telemetry import get_logger
from anabranch.wire import Ack, BaseCommand, Command, Flow, Send

if TYPE_CHECKING:
    from anabranch.broker.session import Session
    from anabranch.broker.topic import Topic

_log = get_logger("broker")


class Spawns(Protocol):
    """Runs coroutines in the background."""

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See `Tasks.spawn`."""
        ...


class Mishaps:
    """Those of one broker."""

    def __init__(self, fail: FailureSink | None) -> None:
        """With `fail` the first one is the last."""
        self.count = 0
        self._fail = fail

    def report(self, doing: str, error: Exception) -> None:
        """Something unforeseen was raised; whoever calls gives up what it was about."""
        self.count += 1
        _log.error("unexpected_error", doing=doing, cause=error)
        if self._fail is not None:
            self._fail(doing, error)

    def met_by(self, session: "Session", command: Command, error: Exception) -> None:
        """A command raised something unforeseen: its topic is opened anew, its connection ends."""
        name = _name_of(command)
        self.report(f"{name} of {session.peer}", error)
        topic = _topic_of(session, command)
        if topic is not None:
            topic.fail(error)
        session.refuse_connection(f"{name}: {type(error).__name__}")

    def contained(self, tasks: Tasks, give_up: Callable[[Exception], None]) -> Spawns:
        """Tasks of which an unforeseen error ends no more than what `give_up` lets go."""
        return _Contained(self, tasks, give_up)


class _Contained:
    def __init__(
        self, mishaps: Mishaps, tasks: Tasks, give_up: Callable[[Exception], None]
    ) -> None:
        self._mishaps = mishaps
        self._tasks = tasks
        self._give_up = give_up

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._tasks.spawn(name, self._run(name, coroutine))
        # If it is cancelled before it began, nobody else says that this one is over too.
        task.add_done_callback(lambda _: coroutine.close())
        return task

    async def _run(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except AnabranchError:
            raise
        except Exception as error:  # noqa: BLE001 - shown, counted, and given up on
            self._mishaps.report(name, error)
            self._give_up(error)


def _name_of(command: Command) -> str:
    if isinstance(command, BaseCommand):
        return BaseCommand.Type.Name(command.type)
    return type(command).__name__.upper()


def _topic_of(session: "Session", command: Command) -> "Topic | None":
    """The topic of the producer or consumer that a command names, if it is open here."""
    if isinstance(command, Send):
        producing = session.producers.get(command.producer_id)
        return producing[1] if producing is not None else None
    consumer_id = None
    if isinstance(command, Ack | Flow):
        consumer_id = command.consumer_id
    elif isinstance(command, BaseCommand):
        _, body = next(iter(command.ListFields()[1:]), (None, None))
        consumer_id = getattr(body, "consumer_id", None)
    consuming = session.consumers.get(consumer_id) if consumer_id is not None else None
    return consuming[2] if consuming is not None else None
