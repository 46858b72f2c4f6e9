"""One server of the modelled Oxia, as its clients meet it."""

import asyncio
import contextvars
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from google.protobuf.message import Message

from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.requests import SERVICE
from anabranch.runtime.network import Listener, Network
from anabranch.testing.oxia_model.calls import ServedCall, ServerWire
from anabranch.testing.oxia_model.cluster import Cluster
from anabranch.testing.oxia_model.shard import ModelShard

T = TypeVar("T")
_PAGE: Final = 100
_CLOSED_S: Final = 0.01
"""A real loop closes sockets a little later than it is told to."""
NAMESPACE: Final = "default"


def _pages(items: Iterator[T]) -> Iterator[list[T]]:
    while page := list(islice(items, _PAGE)):
        yield page


@dataclass(slots=True)
class _Place:
    """Up to where somebody was told of a shard."""

    shard: int
    offset: int


class ModelServer:
    """Answers calls. A `CallHandler`."""

    def __init__(self, cluster: Cluster, context: contextvars.Context) -> None:
        self.cluster = cluster
        self.address = ""
        self._context = context
        self._wires: list[ServerWire] = []
        self._following: dict[ServedCall, _Place] = {}
        """Who is told of a shard, and up to where that was done."""
        self._asking: dict[ServedCall, None] = {}
        """Who is told of assignments."""
        self._writing: dict[ServedCall, int] = {}
        self._frozen: dict[int, ModelShard] | None = None
        """What this server believes to lead, as it was, while it hears nothing of the others."""
        self._told_assignments: bytes | None = None
        self._methods: dict[str, Callable[[ServedCall, bytes], None]] = {
            "GetShardAssignments": self._assignments,
            "Write": self._write,
            "WriteStream": self._write_stream,
            "Read": self._read,
            "List": self._list,
            "RangeScan": self._range_scan,
            "GetNotifications": self._notifications,
            "CreateSession": self._create_session,
            "KeepAlive": self._keep_alive,
            "CloseSession": self._close_session,
        }

    async def start(self, network: Network, host: str, port: int) -> Listener:
        """Listen, and take part."""
        listener = await network.listen(host, port, self._accept)
        self.address = f"{host}:{listener.port}"
        self.cluster.join(self)
        return listener

    def _accept(self) -> ServerWire:
        self._wires = [wire for wire in self._wires if wire.open]
        self._wires.append(ServerWire(self))
        return self._wires[-1]

    async def close(self) -> None:
        """End every connection."""
        for wire in self._wires:
            wire.abort()
        await asyncio.sleep(_CLOSED_S)

    def begin(self, call: ServedCall, message: bytes) -> None:
        """See `CallHandler.begin`."""
        method = self._methods.get(call.method.removeprefix(SERVICE))
        if method is None:
            call.fail("UNIMPLEMENTED", call.method)
        else:
            method(call, message)

    def freeze(self, led: dict[int, ModelShard]) -> None:
        """Go on by oneself: nothing can be written, but whoever asks is answered."""
        self._frozen = copy.deepcopy(led)

    def thaw(self) -> None:
        """Learn that others lead."""
        frozen, self._frozen = self._frozen or {}, None
        for shard in frozen:
            self.deposed(shard)

    def _shard(self, number: int) -> ModelShard:
        return (self.cluster.shards if self._frozen is None else self._frozen)[number]

    def _leads(self, call: ServedCall, shard: int, *, writes: bool = False) -> bool:
        if self._frozen is not None and shard in self._frozen:
            return not writes  # what would be written is never answered
        if not self.cluster.leads(self, shard):
            call.fail("NOT_FOUND", f"this server does not lead shard {shard}")
            return False
        return True

    def _answer(self, call: ServedCall, answer: Message) -> None:
        call.send(answer.SerializeToString())
        call.end()

    # --- what the cluster tells -----------------------------------------------------------------

    def _soon(self, then: Callable[..., object], *arguments: object) -> None:
        self.cluster.world.loop.call_soon(then, *arguments, context=self._context)

    def assigned(self) -> None:
        """Somebody leads, or other servers do."""
        self._soon(self._tell_assignments)

    def deposed(self, shard: int) -> None:
        """Another server leads a shard."""
        self._soon(self._break_off, shard)

    def notify(self, shard: int) -> None:
        """A shard that this server leads has another entry."""
        self._soon(self._tell, shard)

    def _break_off(self, shard: int) -> None:
        following = [call for call, place in self._following.items() if place.shard == shard]
        writing = [call for call, number in self._writing.items() if number == shard]
        for call in following + writing:
            call.fail("UNAVAILABLE", f"another server leads shard {shard}")

    # --- assignments ----------------------------------------------------------------------------

    def _assignments(self, call: ServedCall, message: bytes) -> None:
        request = pb.ShardAssignmentsRequest.FromString(message)
        if request.namespace != NAMESPACE:
            call.fail("NOT_FOUND", "namespace not found")
            return
        self._asking[call] = None
        self._tell_assignments()

    def _tell_assignments(self) -> None:
        if self._frozen is None and (found := self.cluster.assignments(NAMESPACE)) is not None:
            self._told_assignments = found.SerializeToString()
        for call in list(self._asking):
            if not call.open:
                del self._asking[call]
            elif self._told_assignments is not None:
                call.send(self._told_assignments)

    # --- writing --------------------------------------------------------------------------------

    def _write(self, call: ServedCall, message: bytes) -> None:
        request = pb.WriteRequest.FromString(message)
        if self._leads(call, request.shard, writes=True):
            self._answer(call, self.cluster.write(request.shard, request))

    def _write_stream(self, call: ServedCall, message: bytes) -> None:
        shard = int(call.headers["shard-id"])
        if not self._leads(call, shard):
            return
        self._writing = {each: what for each, what in self._writing.items() if each.open}
        self._writing[call] = shard

        def write(request: bytes) -> None:
            if not self._leads(call, shard, writes=True):
                return
            answer = self.cluster.write(shard, pb.WriteRequest.FromString(request))
            world, share = self.cluster.world, self.cluster.nature.lost_answers
            if share and world.rng.random() < share:
                world.reach("oxia: connection ends before an answer")
                call.break_off()
            else:
                call.send(answer.SerializeToString())

        call.on_message = write

    # --- reading --------------------------------------------------------------------------------

    def _read(self, call: ServedCall, message: bytes) -> None:
        request = pb.ReadRequest.FromString(message)
        if self._leads(call, request.shard):
            shard = self._shard(request.shard)
            self._answer(call, pb.ReadResponse(gets=[shard.get(get) for get in request.gets]))

    def _keys(self, call: ServedCall, message: bytes) -> Iterator[list[str]]:
        request = pb.RangeRequest.FromString(message)
        if not self._leads(call, request.shard):
            return iter(())
        found = self._shard(request.shard).keys(
            request.start_inclusive,
            request.end_exclusive,
            internal=request.include_internal_keys,
        )
        return _pages(found)

    def _list(self, call: ServedCall, message: bytes) -> None:
        for page in self._keys(call, message):
            call.send(pb.ListResponse(keys=page).SerializeToString())
        call.end()

    def _range_scan(self, call: ServedCall, message: bytes) -> None:
        shard = pb.RangeRequest.FromString(message).shard
        for page in self._keys(call, message):
            records = [self._shard(shard).record(key) for key in page]
            call.send(pb.RangeScanResponse(records=records).SerializeToString())
        call.end()

    # --- notifications --------------------------------------------------------------------------

    def _notifications(self, call: ServedCall, message: bytes) -> None:
        request = pb.NotificationsRequest.FromString(message)
        if not self._leads(call, request.shard):
            return
        shard = self._shard(request.shard)
        offset = len(shard.batches) - 1
        if request.HasField("start_offset_exclusive"):
            offset = request.start_offset_exclusive
        else:
            marker = pb.NotificationBatch(shard=shard.number, offset=offset)
            call.send(marker.SerializeToString())
        self._following[call] = _Place(shard.number, offset)
        self._tell(shard.number)

    def _tell(self, number: int) -> None:
        if self._frozen is not None and number not in self._frozen:
            return
        shard = self._shard(number)
        for call, place in list(self._following.items()):
            if not call.open:
                del self._following[call]
            elif place.shard == number:
                for batch in shard.batches[max(place.offset + 1, shard.kept_from) :]:
                    call.send(batch.SerializeToString())
                place.offset = len(shard.batches) - 1

    # --- sessions -------------------------------------------------------------------------------

    def _create_session(self, call: ServedCall, message: bytes) -> None:
        request = pb.CreateSessionRequest.FromString(message)
        if self._leads(call, request.shard, writes=True):
            session = self.cluster.open_session(
                request.shard, request.session_timeout_ms, request.client_identity
            )
            self._answer(call, pb.CreateSessionResponse(session_id=session))

    def _keep_alive(self, call: ServedCall, message: bytes) -> None:
        request = pb.SessionRequest.FromString(message)
        if not self._leads(call, request.shard):
            return
        if self._frozen is None:
            known = self.cluster.touch(request.shard, request.session_id)
        else:
            known = request.session_id in self._frozen[request.shard].sessions
        self._answer_session(call, known)

    def _close_session(self, call: ServedCall, message: bytes) -> None:
        request = pb.SessionRequest.FromString(message)
        if self._leads(call, request.shard, writes=True):
            known = self.cluster.close_session(request.shard, request.session_id)
            self._answer_session(call, known)

    def _answer_session(self, call: ServedCall, known: bool) -> None:
        if known:
            self._answer(call, pb.SessionResponse())
        else:
            call.fail("NOT_FOUND", "session not found")
