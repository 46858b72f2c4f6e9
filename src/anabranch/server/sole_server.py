"""Keeps standalone servers apart that are started on one metadata store.

Such a server takes every topic for its own. Two of them would take ledgers from each other without
end; nothing would be lost, but nobody could work. So the one that serves holds the lock

    /anabranch/standalone   {"format": "anabranch.standalone", "version": 1, "service_url": "…",
                             "instance": "…"}

and another one is refused; so is one beside brokers of a cluster, ours or Pulsar's, and a broker
beside it. The instance is another one with each start: an address alone does not tell one server
from another, since many call themselves localhost. A server that comes back at the address of one
that has crashed waits until the session of that one is over. Stores of one process alone need no
lock: their folder has one.
"""

import asyncio
import json
from contextlib import suppress
from typing import Final

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConfigError,
    ConflictError,
    LockBusy,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.ledgers.addresses import EMBEDDED, MEMORY
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import MetadataStore
from anabranch.ownership.addresses import BROKERS
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


def refuse_private(metadata_url: str) -> None:
    """Make sure that a store can take the place of one that processes share.

    Raises:
        ConfigError: if each process would have one of its own there.
    """
    if not may_be_shared(metadata_url):
        raise ConfigError(
            f"{metadata_url} is a store of one process alone: others cannot follow there. Have "
            "`anabranch metadata serve` keep it, and name that as anabranch://HOST:PORT"
        )


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
        self._service_url = service_url
        fields = {"format": _FORMAT, "version": _VERSION, "service_url": service_url}
        fields["instance"] = runtime.entropy.token_hex(8)
        self._value = json.dumps(fields).encode()

    async def claim(self) -> None:
        """Take the lock, and keep it from now on.

        Raises:
            ConflictError: if another server has it, or brokers of a cluster are there.
            Unreachable: if the metadata store cannot be asked.
        """
        self._locks.start()
        lock = await self._first()
        await self._refuse_brokers(lock)
        self._tasks.spawn("stay the only server", self._keep(lock))

    async def _refuse_brokers(self, lock: Lock) -> None:
        """Give the lock up if brokers are there.

        A broker registers first and looks for the lock then, so one of the two sees the other.

        Raises:
            ConflictError: if there are some.
        """
        brokers = await self._metadata.children(BROKERS)
        if not brokers:
            return
        with suppress(SessionExpired, Unreachable, OutcomeUnknown):  # it goes with the session
            await lock.release()
        raise ConflictError(
            "the metadata store is used by brokers of a cluster, which a standalone server "
            f"cannot share topics with: {', '.join(brokers)}. Stop them; those of crashed "
            f"ones are gone after {self._metadata.session_timeout_s:g} s"
        )

    async def _first(self) -> Lock:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._metadata.session_timeout_s + limits.LOCK_RETRY_S
        while True:
            with self._locks.change_of(PATH) as changed:
                try:
                    return await self._locks.acquire(PATH, self._value)
                except LockBusy as busy:
                    left_s = end_s - loop.time()
                    if _address(busy.holder) != self._service_url or left_s <= 0:
                        raise _taken(self._metadata, busy.holder, "is used by") from busy
                    _log.warning("sole_server_waits_for_its_place", seconds_at_most=round(left_s))
                    await asyncio.wait([changed], timeout=left_s)

    async def close(self) -> None:
        """Let the next one have it."""
        await self._locks.close()

    async def _keep(self, lock: Lock) -> None:
        """Take the lock again when the session was lost; end if somebody else was faster.

        While there was no lock, brokers saw none: they are looked for again.
        """
        while True:
            _log.warning("sole_server_lock_lost", reason=await lock.expired)
            lock = await self._take_again()
            while not lock.expired.done():
                try:
                    await self._refuse_brokers(lock)
                    break
                except (SessionExpired, Unreachable, OutcomeUnknown) as error:
                    _log.info("sole_server_look_waits", reason=str(error))
                    await asyncio.sleep(limits.LOCK_RETRY_S)

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
