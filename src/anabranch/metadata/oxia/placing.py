"""Where in history the newest writes have their place: a write is answered once that is known.

The server answers a write, and tells of it in its notifications, in any order. Only both together
make an answer of ours: with the place of the write, and after its own watches can have it.
"""

import asyncio
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from anabranch import limits
from anabranch.errors import OutcomeUnknown
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.store import Revision

Write = tuple[str, int]
"""A key, and Oxia's number for what was written there."""
Placed = tuple[pb.PutResponse, Revision | None]
"""The answer to a put, and its place if it was carried out."""
_SWEEPS: Final = 10


class _Waiting(NamedTuple):
    future: asyncio.Future[Placed]
    answer: pb.PutResponse
    until_s: float


class Places:
    """The newest writes that were told, and those that were answered and not told yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._known: OrderedDict[Write, Revision] = OrderedDict()
        self._wanted: dict[Write, list[_Waiting]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def known(self, write: Write) -> Revision | None:
        """The place of a write; None if it was not told, or long ago."""
        return self._known.get(write)

    def learn(self, write: Write, revision: Revision) -> None:
        """A write was told."""
        self._known[write] = revision
        if len(self._known) > limits.OXIA_KNOWN_WRITES_MAX:
            self._known.popitem(last=False)
        for waiting in self._wanted.pop(write, ()):
            if not waiting.future.done():
                waiting.future.set_result((waiting.answer, revision))

    def settle(self, revision: Revision) -> None:
        """Nobody will be told of some writes any more: all that wait get this place."""
        wanted, self._wanted = self._wanted, {}
        for several in wanted.values():
            for waiting in several:
                if not waiting.future.done():
                    waiting.future.set_result((waiting.answer, revision))

    def answered(self, future: asyncio.Future[Placed], key: str, answer: Any) -> None:
        """A put was answered: let its future have the answer when its place is known."""
        if answer.status != pb.OK:
            future.set_result((answer, None))
            return
        write = (key, answer.version.version_id)
        known = self._known.get(write)
        if known is not None:
            future.set_result((answer, known))
            return
        until_s = self._loop.time() + limits.OXIA_CALL_S_MAX
        self._wanted.setdefault(write, []).append(_Waiting(future, answer, until_s))
        if self._sweeping is None:
            self._sweep()

    def _sweep(self) -> None:
        """Let nobody wait for ever."""
        now_s = self._loop.time()
        for write, waiting in list(self._wanted.items()):
            if waiting[0].until_s <= now_s:
                self._give_up(write)
        self._sweeping = None
        if self._wanted:
            self._sweeping = self._loop.call_later(limits.OXIA_CALL_S_MAX / _SWEEPS, self._sweep)

    def _give_up(self, write: Write) -> None:
        for waiting in self._wanted.pop(write):
            if not waiting.future.done():
                # Not for want of an answer, but who asks again would write it twice.
                waiting.future.set_exception(
                    OutcomeUnknown(
                        f"{write[0]} was written, but Oxia's notification of it did not come"
                    )
                )
                waiting.future.exception()

    def close(self) -> None:
        """Let nobody wait any longer."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for write in list(self._wanted):
            self._give_up(write)
