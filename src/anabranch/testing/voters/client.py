"""A client of the voters: puts in bursts, reads behind a barrier, and a memory of every answer."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.voters.frames import Frames, Peer
from anabranch.testing.voters.server import (
    ANSWER,
    ANSWER_FRAME,
    PORT,
    REQUEST,
    REQUEST_FRAME,
    Status,
    Verb,
    host_of,
)

ANSWER_S_MAX: Final = 0.5
_TRIES: Final = 200
Answer = tuple[Status, bytes]
_LOST: Final[Answer] = (Status.UNKNOWN, b"")


@dataclass(slots=True)
class Promises:
    """What clients were told, kept outside of their processes."""

    asked: dict[str, bytes] = field(default_factory=dict)
    acknowledged: dict[str, bytes] = field(default_factory=dict)
    in_doubt: int = 0
    reads: int = 0


class VoterClient:
    """Speaks to whoever leads."""

    def __init__(self, runtime: Runtime, tasks: Tasks, name: str, promises: Promises) -> None:
        self._entropy = runtime.entropy
        self._name = name
        self._promises = promises
        self._peers = {
            voter: Peer(runtime, tasks, host_of(voter), PORT, self._answered) for voter in (1, 2, 3)
        }
        self._target = 1
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._next_number = 1

    def _answered(self, frames: Frames, letter: bytes, content: bytes) -> None:
        assert letter == ANSWER_FRAME, f"{letter!r} for a client"
        number, status, leader = ANSWER.unpack_from(content)
        if status == Status.NOT_LEADER and leader:
            self._target = leader
        answer = self._waiting.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result((Status(status), content[ANSWER.size :]))

    def _ask(self, verb: Verb, path: str, value: bytes) -> asyncio.Future[Answer]:
        number = self._next_number
        self._next_number += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        name = path.encode()
        request = REQUEST.pack(number, verb, len(name)) + name + value
        self._peers[self._target].send(REQUEST_FRAME, request)
        return answer

    async def _ask_all(self, asked: list[tuple[Verb, str, bytes]]) -> list[Answer]:
        if self._peers[self._target].frames is None:
            # Nothing was sent, so nothing can have happened.
            await asyncio.sleep(self._entropy.uniform(0.0, 0.1))
            self._target = 1 + self._entropy.below(3)
            return [(Status.NOT_LEADER, b"")] * len(asked)
        answers = [self._ask(*each) for each in asked]
        done, _ = await asyncio.wait(answers, timeout=ANSWER_S_MAX)
        if len(done) < len(answers):
            self._target = 1 + self._entropy.below(3)
        return [answer.result() if answer.done() else _LOST for answer in answers]

    async def put_burst(self, paths: list[str]) -> None:
        """Put nodes that nobody else puts; what was surely refused is asked for again."""
        promises = self._promises
        left = {path: f"{self._name} {path}".encode() for path in paths}
        promises.asked |= left
        refused = False
        for _ in range(_TRIES):
            # After a refusal one goes ahead to find the leader, and the others follow.
            paths = list(left)[:1] if refused else list(left)
            answers = await self._ask_all([(Verb.PUT, path, left[path]) for path in paths])
            refused = any(status is Status.NOT_LEADER for status, _ in answers)
            for path, (status, _) in zip(paths, answers, strict=True):
                if status is Status.NOT_LEADER:
                    continue
                value = left.pop(path)
                if status is Status.DONE:
                    promises.acknowledged[path] = value
                else:
                    promises.in_doubt += 1
            if not left:
                return
            if refused:
                await asyncio.sleep(self._entropy.uniform(0.0, 0.2))
        promises.in_doubt += len(left)

    async def read_back(self) -> None:
        """Read a node that was acknowledged to anybody: it must be there."""
        known = list(self._promises.acknowledged)
        if not known:
            return
        # The newest is the one a leader of yesterday does not have.
        path = known[-1 - self._entropy.below(min(len(known), 5))]
        expected = self._promises.acknowledged[path]
        ((status, value),) = await self._ask_all([(Verb.GET, path, b"")])
        if status is Status.DONE:
            self._promises.reads += 1
            assert value == expected, f"{path} was acknowledged, and a later read found {value!r}"
