"""Keeps standalone servers apart that are started on one metadata store.

Such a server takes every topic for its own. Two of them would take ledgers from each other without
end; nothing would be lost, but nobody could work. So the one that serves holds the lock

    /anabranch/standalone   {"format": "anabranch.standalone", "version": 1, "service_url": "…"}

and another one is refused. A server that comes back at the same address takes the lock from what it
was before. Stores of one process alone need no lock: their folder has one.
"""

import asyncio
import json
from typing import Final

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConflictError,
    LockBusy,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.ledgers.addresses import EMBEDDED, MEMORY
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

PATH: Final = "/anabranch/standalone"
_FORMAT: Final = "anabranch.standalone"
_VERSION: Final = 1
_log: Final = get_logger("server")


def may_be_shared(metadata_url: str) -> bool:
    """Whether other processes can reach a metadata store."""
    return not metadata_url.startswith((EMBEDDED, MEMORY))


async def refuse_beside(metadata: MetadataStore) -> None:
    """Make sure that no standalone server has a metadata store for itself.

    Raises:
        ConflictError: if one has.
    """
    node = await metadata.get(PATH)
    if node is not None:
        raise _taken(metadata, node.value, "is used by")


class SoleServer:
    """The lock of one server."""

    def __init__(
        self, metadata: MetadataStore, runtime: Runtime, tasks: Tasks, service_url: str
    ) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._locks = Locks(metadata, runtime.clock, tasks, prefix=PATH)
        fields = {"format": _FORMAT, "version": _VERSION, "service_url": service_url}
        self._value = json.dumps(fields).encode()

    async def claim(self) -> None:
        """Take the lock, and keep it from now on.

        Raises:
            ConflictError: if another server has it.
            Unreachable: if the metadata store cannot be asked.
        """
        self._locks.start()
        try:
            lock = await self._locks.acquire(PATH, self._value)
        except LockBusy as busy:
            raise _taken(self._metadata, busy.holder, "is used by") from busy
        self._tasks.spawn("stay the only server", self._keep(lock))

    async def close(self) -> None:
        """Let the next one have it."""
        await self._locks.close()

    async def _keep(self, lock: Lock) -> None:
        """Take the lock again when the session was lost; end if somebody else was faster."""
        while True:
            _log.warning("sole_server_lock_lost", reason=await lock.expired)
            lock = await self._take_again()

    async def _take_again(self) -> Lock:
        while True:
            try:
                return await self._locks.acquire(PATH, self._value)
            except LockBusy as busy:
                raise _taken(self._metadata, busy.holder, "was taken over by") from busy
            except (SessionExpired, Unreachable, OutcomeUnknown) as error:
                _log.info("sole_server_lock_waits", reason=str(error))
                await asyncio.sleep(limits.LOCK_RETRY_S)


def _taken(metadata: MetadataStore, holder: bytes, how: str) -> AnabranchError:
    return ConflictError(
        f"the metadata store {how} the standalone server at {_address(holder)}, which shares it "
        "with none. Stop that one; if it has crashed, its mark is gone after "
        f"{metadata.session_timeout_s:g} s"
    )


def _address(holder: bytes) -> str:
    """The address in a lock's value, or the value itself if it is of another format."""
    try:
        return str(json.loads(holder)["service_url"])
    except (ValueError, KeyError, TypeError):
        return repr(holder[:80])
