"""The metadata store that lives and dies with its process. Only the factory names it."""

import asyncio

from anabranch.metadata.commands import Command, EndSessions, OpenSession
from anabranch.metadata.local_handle import Answer, Backing, LocalHandle
from anabranch.metadata.state_machine import StateMachine
from anabranch.runtime import Clock

_EPOCH = 1


class MemoryBacking(Backing):
    """A tree in memory: a command takes effect at once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(StateMachine(), clock)

    async def propose(self, command: Command) -> Answer:
        """See `Backing.propose`."""
        answer: Answer = asyncio.get_running_loop().create_future()
        answer.set_result(self.apply(command, _EPOCH))
        return answer

    async def leave(self, handle: LocalHandle) -> None:
        """See `Backing.leave`."""
        self.apply(EndSessions(self.clock.wall_ms(), (handle.session,)), _EPOCH)

    def task_failed(self, name: str, failure: BaseException) -> None:
        """See `Backing.task_failed`."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{name} broke", "exception": failure}
        )


class MemoryStore(LocalHandle):
    """A tree in memory, seen with a first session."""

    def __init__(self, clock: Clock) -> None:
        backing = MemoryBacking(clock)
        super().__init__(
            backing, backing.apply(OpenSession(clock.wall_ms(), timeout_ms=0), _EPOCH).opened
        )
