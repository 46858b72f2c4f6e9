"""Oxia's own operations over all shards of a namespace, without any notion of a tree.

Keys are any text; a partition key puts several keys on one shard.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConfigError,
    NotFound,
    ProtocolError,
    StoreFailed,
    Unreachable,
)
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.address import OxiaAddress
from anabranch.metadata.oxia.keys import server_order
from anabranch.metadata.oxia.requests import SERVICE, WriteOperation
from anabranch.metadata.oxia.routing import ShardMap, parse_assignments
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.runtime import Runtime
from anabranch.runtime.channels import OPEN_TO_ALL, CallFailed, Channel, Security
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_DISTRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
"""What the library says of a server's certificate that was not signed by whom we trust."""
_log = get_logger("oxia-client")


class OxiaClient:
    """A namespace of an Oxia cluster."""

    def __init__(self, runtime: Runtime, address: OxiaAddress, security: Security) -> None:
        """Use `open`."""
        if runtime.channels is None:
            raise ConfigError("an Oxia store cannot be reached from here: no gRPC in this runtime")
        self._channels = runtime.channels
        self._address = address
        self._security = security
        self._open_channels: dict[str, Channel] = {}
        self.on_failure: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self.tasks = Tasks(self._task_failed)
        self._last_error = "no answer"
        self.shard_map: ShardMap | None = None
        self.links: tuple[ShardLink, ...] = ()
        """To every shard, in the order of their numbers."""
        self.links_by_number: dict[int, ShardLink] = {}
        self.failure: AnabranchError | None = None
        """Why nothing is sent any more although nobody closed it."""

    @classmethod
    async def open(
        cls, runtime: Runtime, address: OxiaAddress, security: Security = OPEN_TO_ALL
    ) -> "OxiaClient":
        """Ask a server for the shards of a namespace, and connect to their leaders.

        Raises:
            Unreachable: if it does not answer in time.
            NotFound: if there is no such namespace.
            ConfigError: if this installation cannot speak gRPC, or what was given to prove who
                we are, or whom we trust, cannot be used.
        """
        client = cls(runtime, address, security)
        # Here and not in the task: what is wrong with this installation is known at once.
        client._channel(address.server)
        opened: asyncio.Future[None] = client._loop.create_future()
        client.tasks.spawn("oxia-assignments", client._follow_assignments(opened))
        try:
            async with asyncio.timeout(limits.OXIA_OPEN_S_MAX):
                await opened
        except TimeoutError:
            await client.close()
            raise Unreachable(
                f"no Oxia server answers at {address.server}: {client._last_error}"
            ) from None
        except BaseException:
            await client.close()
            raise
        return client

    def _task_failed(self, name: str, failure: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"{name} broke", "exception": failure})

    async def close(self) -> None:
        """Finish writes under way and let go of every connection."""
        try:
            await asyncio.gather(*(link.close() for link in self.links))
        finally:
            await self.tasks.close()
            for channel in self._open_channels.values():
                await channel.close()

    # --- shards -------------------------------------------------------------------------------

    def _channel(self, server: str) -> Channel:
        channel = self._open_channels.get(server)
        if channel is None:
            channel = self._channels.open(server, self._security)
            self._open_channels[server] = channel
        return channel

    async def _follow_assignments(self, opened: asyncio.Future[None]) -> None:
        request = pb.ShardAssignmentsRequest(namespace=self._address.namespace)
        servers = [self._address.server]
        turn = 0
        while True:
            replies = self._channel(servers[turn % len(servers)]).stream(
                f"{SERVICE}GetShardAssignments", request.SerializeToString()
            )
            try:
                async for data in replies:
                    self._assigned(parse_assignments(data, self._address.namespace))
                    if self.failure is not None:
                        return
                    servers = [self._address.server, *self._leaders()]
                    if not opened.done():
                        opened.set_result(None)
            except CallFailed as error:
                turn += 1
                self._last_error = self._without_token(str(error))
                refused = error.code in ("UNAUTHENTICATED", "PERMISSION_DENIED")
                known = refused or error.code == "NOT_FOUND" or _DISTRUSTED in error.detail
                if known and not opened.done():
                    opened.set_exception(self._refusal(error, refused))
                    return
            except (ProtocolError, NotFound) as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
                _log.warning("oxia_assignments_refused", reason=str(error))
            finally:
                replies.cancel()
            await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MAX / 4)

    def _refusal(self, error: CallFailed, refused: bool) -> AnabranchError:
        server, namespace = self._address
        if _DISTRUSTED in error.detail:
            return ConfigError(f"the certificate of Oxia at {server} is not trusted")
        if not refused:
            return NotFound(f"namespace {namespace!r} of Oxia at {server}: {error.detail}")
        detail = self._without_token(error.detail)
        return ConfigError(f"Oxia at {server} does not accept the credentials: {detail}")

    def _without_token(self, said: str) -> str:
        return said.replace(self._security.token, "***") if self._security.token else said

    def _leaders(self) -> list[str]:
        assert self.shard_map is not None
        return sorted({shard.leader for shard in self.shard_map.shards})

    def _assigned(self, shard_map: ShardMap) -> None:
        if self.shard_map is None:
            self.shard_map = shard_map
            self.links = tuple(
                ShardLink(
                    shard.number, self._address.namespace, self._channel(shard.leader), self.tasks
                )
                for shard in shard_map.shards
            )
            self.links_by_number = {link.number: link for link in self.links}
            return
        if shard_map.numbers != self.shard_map.numbers:
            # Sessions, offsets and keys under way belong to shards that are gone.
            self._fail(
                StoreFailed(
                    f"namespace {self._address.namespace!r} of Oxia has other shards now, as after "
                    "a split"
                )
            )
            return
        self.shard_map = shard_map
        for shard in shard_map.shards:
            channel = self._channel(shard.leader)
            link = self.links_by_number[shard.number]
            if link.channel is not channel:
                link.moved(channel)

    def _fail(self, error: StoreFailed) -> None:
        _log.warning("oxia_resharded", reason=str(error))
        self.failure = error
        for link in self.links:
            link.drop(error)
        self.on_failure()

    def link_of(self, key: str) -> ShardLink:
        """The way to the shard of a key, or of a partition key."""
        assert self.shard_map is not None, "open the client first"
        return self.links_by_number[self.shard_map.shard_of(key)]

    def place_of(self, key: str) -> int:
        """Which of `links` leads to the shard of a key."""
        return 0 if len(self.links) == 1 else self.links.index(self.link_of(key))

    # --- single keys --------------------------------------------------------------------------

    def get(
        self, key: str, *, value: bool = True, partition: str | None = None
    ) -> asyncio.Future[pb.GetResponse]:
        """Look up a key."""
        link = self.link_of(key if partition is None else partition)
        return link.get(pb.GetRequest(key=key, include_value=value))

    async def get_near(
        self, key: str, comparison: Any, *, value: bool = True
    ) -> pb.GetResponse | None:
        """The nearest key below (FLOOR, LOWER) or above (CEILING, HIGHER), of all shards."""
        request = pb.GetRequest(key=key, include_value=value, comparison=comparison)
        answers = await asyncio.gather(*(link.get(request) for link in self.links))
        found = [answer for answer in answers if answer.status == pb.OK]
        if not found:
            return None
        nearest = max if comparison in (pb.FLOOR, pb.LOWER) else min
        return nearest(found, key=lambda answer: server_order(answer.key))

    def write(self, operation: WriteOperation, partition: str | None = None) -> asyncio.Future[Any]:
        """Put or delete one key; the answer is the server's own, with its status."""
        assert not isinstance(operation, pb.DeleteRangeRequest), "a range has several shards"
        return self.link_of(operation.key if partition is None else partition).write(operation)

    async def next_in_sequence(
        self,
        prefix: str,
        value: bytes,
        partition: str,
        deltas: Sequence[int],
    ) -> str:
        """Put a value under the next key of a sequence that the server counts; return the key."""
        request = pb.PutRequest(
            key=prefix, value=value, partition_key=partition, sequence_key_delta=deltas
        )
        answer: pb.PutResponse = await self.write(request, partition)
        if answer.status != pb.OK or not answer.HasField("key"):
            raise ProtocolError(f"no next key of {prefix!r}: {pb.Status.Name(answer.status)}")
        return answer.key

    async def sequence_updates(self, prefix: str, partition: str) -> AsyncIterator[str]:
        """The newest key of a sequence whenever there is one; some may be passed over."""
        link = self.link_of(partition)
        request = pb.SequenceUpdatesRequest(shard=link.number, key=prefix)
        async for answer in link.stream("GetSequenceUpdates", request, pb.SequenceUpdatesResponse):
            yield answer.highest_sequence_key

    # --- ranges -------------------------------------------------------------------------------

    async def keys_in(self, keys: tuple[str, str], *, internal: bool = False) -> list[str]:
        """The keys in a range, of all shards, in the server's order."""
        parts = await asyncio.gather(
            *(link.keys_in(keys, internal=internal) for link in self.links)
        )
        if len(parts) == 1:
            return parts[0]
        return sorted((key for part in parts for key in part), key=server_order)

    async def delete_range(self, keys: tuple[str, str]) -> None:
        """Delete every key in a range."""
        request = pb.DeleteRangeRequest(start_inclusive=keys[0], end_exclusive=keys[1])
        await asyncio.gather(*(link.write(request) for link in self.links))

    async def page(self, keys: tuple[str, str]) -> tuple[list[tuple[int, pb.GetResponse]], bool]:
        """The first records in a range, each with the place of its shard; whether that was all."""
        parts = await asyncio.gather(*(link.page(keys) for link in self.links))

        def order(item: tuple[int, pb.GetResponse]) -> Any:
            return server_order(item[1].key)

        merged = list(
            heapq.merge(
                *([(place, record) for record in part] for place, (part, _) in enumerate(parts)),
                key=order,
            )
        )
        ends = [order((0, part[-1])) for part, whole in parts if not whole]
        if not ends:
            return merged, True
        # Beyond where the first shard stopped, others may have what is not here.
        return [item for item in merged if order(item) <= min(ends)], False
