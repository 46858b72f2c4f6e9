"""An Oxia in this process that a test can interrupt: any shards, any leaders, no network, no disk.

It is the door `Channels` with a cluster behind it. Keys, versions, sessions and notifications are
as the store asks for them; what the store never asks for is not there.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.keys import server_order
from anabranch.metadata.oxia.routing import key_hash
from anabranch.runtime import Runtime
from anabranch.runtime.channels import CallFailed, Headers, Security
from anabranch.runtime.real import real_runtime

URL = "oxia://a:1/default"
_HASHES = 2**32


@dataclass
class Shard:
    """One shard, the same for whoever leads it."""

    number: int
    leader: str
    first: int
    last: int
    records: dict[str, pb.GetResponse] = field(default_factory=dict)
    batches: list[pb.NotificationBatch] = field(default_factory=list)
    sessions: dict[int, str] = field(default_factory=dict)
    version: int = -1

    def write(self, request: pb.WriteRequest) -> pb.WriteResponse:
        batch = pb.NotificationBatch(shard=self.number, offset=len(self.batches))
        answer = pb.WriteResponse()
        for put in request.puts:
            answer.puts.append(self._put(put, batch))
        for delete in request.deletes:
            there = self.records.get(delete.key)
            status = pb.KEY_NOT_FOUND if there is None else pb.OK
            wanted = delete.expected_version_id if delete.HasField("expected_version_id") else None
            if there is not None and wanted not in (None, there.version.version_id):
                status = pb.UNEXPECTED_VERSION_ID
            if status == pb.OK:
                del self.records[delete.key]
                batch.notifications.add(key=delete.key).value.type = pb.KEY_DELETED
            answer.deletes.add(status=status)
        self.batches.append(batch)
        return answer

    def _put(self, put: pb.PutRequest, batch: pb.NotificationBatch) -> pb.PutResponse:
        there = self.records.get(put.key)
        found = -1 if there is None else there.version.version_id
        if put.HasField("expected_version_id") and put.expected_version_id != found:
            return pb.PutResponse(status=pb.UNEXPECTED_VERSION_ID)
        if put.HasField("session_id") and put.session_id not in self.sessions:
            return pb.PutResponse(status=pb.SESSION_DOES_NOT_EXIST)
        version = pb.Version()
        if put.HasField("override_version_id"):
            version.version_id = put.override_version_id
        else:
            self.version += 1
            version.version_id = self.version
        version.modifications_count = 0 if there is None else there.version.modifications_count + 1
        if put.HasField("override_modifications_count"):
            version.modifications_count = put.override_modifications_count
        if put.HasField("session_id"):
            version.session_id, version.client_identity = put.session_id, put.client_identity
        self.records[put.key] = pb.GetResponse(version=version, value=put.value, key=put.key)
        told = batch.notifications.add(key=put.key).value
        told.type = pb.KEY_MODIFIED if version.modifications_count else pb.KEY_CREATED
        told.version_id = version.version_id
        return pb.PutResponse(version=version)

    def get(self, key: str) -> pb.GetResponse:
        if key == keys.LAST_VERSION:
            return pb.GetResponse(value=b"%d" % self.version, key=key)
        if key.startswith(keys.SESSIONS[0]):
            identity = self.sessions[keys.session_of_key(key)]
            value = pb.SessionMetadata(identity=identity).SerializeToString()
            return pb.GetResponse(value=value, key=key)
        return self.records.get(key, pb.GetResponse(status=pb.KEY_NOT_FOUND))

    def listed(self, request: pb.RangeRequest) -> list[str]:
        names = list(self.records)
        if request.include_internal_keys:
            names += [keys.notifications_at(batch.offset)[0] for batch in self.batches]
            names += [f"{keys.SESSIONS[0]}{session:016x}" for session in self.sessions]
        start = server_order(request.start_inclusive)
        end = server_order(request.end_exclusive) if request.end_exclusive else None
        inside = [
            name
            for name in names
            if server_order(name) >= start and (end is None or server_order(name) < end)
        ]
        return sorted(inside, key=server_order)


class StandIn:
    """The cluster, as a door."""

    def __init__(self, leaders: tuple[str, ...] = ("a:1",)) -> None:
        self.shards: dict[int, Shard] = {}
        for number, leader in enumerate(leaders):
            first = _HASHES * number // len(leaders)
            last = _HASHES * (number + 1) // len(leaders) - 1
            self.shards[number] = Shard(number, leader, first, last)
        self.down: set[str] = set()
        """Servers that nobody reaches; what is under way at them just stops."""
        self.unanswered: set[str] = set()
        """Methods that are heard, and nothing is done about."""
        self.refused: dict[str, CallFailed] = {}
        """Methods that fail."""
        self.channels: list[StandInChannel] = []
        self.turn = 0
        self._changed = asyncio.Event()

    def runtime(self) -> Runtime:
        """The doors, with this cluster behind that of gRPC."""
        return replace(real_runtime(), channels=self)

    def open(self, address: str, security: Security) -> "StandInChannel":
        self.channels.append(StandInChannel(self, address))
        return self.channels[-1]

    def notify(self) -> None:
        """Wake whoever waits for something."""
        self.turn += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def later_than(self, turn: int) -> None:
        """Return once something has changed since a turn."""
        while self.turn <= turn:
            await self._changed.wait()

    def move(self, number: int, leader: str) -> None:
        """Let another server lead a shard."""
        self.shards[number].leader = leader
        self.notify()

    def split(self, number: int) -> None:
        """Put two new shards in the place of one."""
        parent = self.shards.pop(number)
        middle = (parent.first + parent.last) // 2
        new = max([number, *self.shards]) + 1
        for child, first, last in ((new, parent.first, middle), (new + 1, middle + 1, parent.last)):
            records = {
                name: record
                for name, record in parent.records.items()
                if first <= key_hash(name) <= last
            }
            self.shards[child] = Shard(
                *(child, parent.leader, first, last, records),
                sessions=dict(parent.sessions),
                version=parent.version,
            )
        self.notify()

    def assignments(self) -> bytes:
        answer = pb.ShardAssignments()
        found = answer.namespaces["default"]
        found.shard_key_router = pb.XXHASH3
        for shard in self.shards.values():
            item = found.assignments.add(shard=shard.number, leader=shard.leader)
            item.hash_range.first, item.hash_range.last = shard.first, shard.last
        return answer.SerializeToString()


class StandInChannel:
    """The way to one server of it."""

    def __init__(self, cluster: StandIn, address: str) -> None:
        self.cluster = cluster
        self.address = address
        self.closed = False

    async def ready(self) -> None:
        while self.address in self.cluster.down:
            await self.cluster.later_than(self.cluster.turn)

    async def ask(self, method: str, message: bytes, *, timeout_s: float) -> bytes:
        name = method.rpartition("/")[2]
        try:
            async with asyncio.timeout(timeout_s):
                await self.answer_or_hang(name)
        except TimeoutError:
            raise CallFailed("DEADLINE_EXCEEDED", "") from None
        if name == "CreateSession":
            create = pb.CreateSessionRequest.FromString(message)
            shard = self.led(create.shard)
            session = 1 + len(shard.batches) + 1000 * len(shard.sessions)
            shard.sessions[session] = create.client_identity
            return pb.CreateSessionResponse(session_id=session).SerializeToString()
        if name == "Write":
            write = pb.WriteRequest.FromString(message)
            return self.write(write).SerializeToString()
        request = pb.SessionRequest.FromString(message)
        shard = self.led(request.shard)
        if request.session_id not in shard.sessions:
            raise CallFailed("NOT_FOUND", "oxia: session not found")
        if name == "CloseSession":
            del shard.sessions[request.session_id]
            mine = [
                pb.DeleteRequest(key=key)
                for key, record in shard.records.items()
                if record.version.session_id == request.session_id
            ]
            self.write(pb.WriteRequest(shard=shard.number, deletes=mine))
        return b""

    async def answer_or_hang(self, name: str) -> None:
        while self.address in self.cluster.down or name in self.cluster.unanswered:
            await self.cluster.later_than(self.cluster.turn)
        if name in self.cluster.refused:
            raise self.cluster.refused[name]

    def led(self, number: int) -> Shard:
        shard = self.cluster.shards.get(number)
        if shard is None:
            raise CallFailed("NOT_FOUND", "oxia: shard not found")
        if shard.leader != self.address:
            raise CallFailed("ABORTED", "oxia: node is not leader for shard")
        return shard

    def write(self, request: pb.WriteRequest) -> pb.WriteResponse:
        answer = self.led(request.shard).write(request)
        self.cluster.notify()
        return answer

    def stream(self, method: str, message: bytes) -> "StandInReplies":
        return StandInReplies(self._replies(method.rpartition("/")[2], message))

    async def _replies(self, name: str, message: bytes) -> AsyncIterator[bytes]:
        await self.answer_or_hang(name)
        if name == "GetShardAssignments":
            said = b""
            while True:
                await self.answer_or_hang(name)
                turn = self.cluster.turn
                if said != (said := self.cluster.assignments()):
                    yield said
                await self.cluster.later_than(turn)
        if name == "GetNotifications":
            follow = pb.NotificationsRequest.FromString(message)
            shard = self.led(follow.shard)
            offset = len(shard.batches) - 1
            if follow.HasField("start_offset_exclusive"):
                offset = follow.start_offset_exclusive
            else:
                yield pb.NotificationBatch(shard=shard.number, offset=offset).SerializeToString()
            while True:
                await self.answer_or_hang(name)
                turn = self.cluster.turn
                self.led(follow.shard)
                for batch in shard.batches[offset + 1 :]:
                    yield batch.SerializeToString()
                    offset = batch.offset
                await self.cluster.later_than(turn)
        if name == "Read":
            read = pb.ReadRequest.FromString(message)
            shard = self.led(read.shard)
            yield pb.ReadResponse(
                gets=[shard.get(get.key) for get in read.gets]
            ).SerializeToString()
            return
        ranged = pb.RangeRequest.FromString(message)
        shard = self.led(ranged.shard)
        if name == "List":
            yield pb.ListResponse(keys=shard.listed(ranged)).SerializeToString()
        else:
            found = [shard.records[key] for key in shard.listed(ranged)]
            yield pb.RangeScanResponse(records=found).SerializeToString()

    def exchange(self, method: str, headers: Headers) -> "StandInExchange":
        assert dict(headers)["namespace"] == "default"
        return StandInExchange(self)

    async def close(self) -> None:
        self.closed = True


class StandInReplies:
    """Replies that can be given up, as those of gRPC."""

    def __init__(self, replies: AsyncIterator[bytes]) -> None:
        self._replies = replies
        self._cancelled = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        ended = asyncio.ensure_future(self._cancelled.wait())
        try:
            while not self._cancelled.is_set():
                reply: asyncio.Future[Any] = asyncio.ensure_future(anext(self._replies, None))
                try:
                    await asyncio.wait([reply, ended], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not reply.done():
                        reply.cancel()
                if ended.done():
                    break
                if (data := reply.result()) is None:
                    return
                yield data
            raise CallFailed("CANCELLED", "the call was ended here")
        finally:
            ended.cancel()

    def cancel(self) -> None:
        self._cancelled.set()


class StandInExchange(StandInReplies):
    """A stream of writes."""

    def __init__(self, channel: StandInChannel) -> None:
        self._channel = channel
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        super().__init__(self._answers())

    async def send(self, message: bytes) -> None:
        if self._cancelled.is_set():
            raise CallFailed("UNAVAILABLE", "the call has ended")
        self._requests.put_nowait(message)

    async def _answers(self) -> AsyncIterator[bytes]:
        while True:
            request = pb.WriteRequest.FromString(await self._requests.get())
            await self._channel.answer_or_hang("WriteStream")
            yield self._channel.write(request).SerializeToString()
