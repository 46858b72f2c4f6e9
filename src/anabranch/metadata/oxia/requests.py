"""How operations on one shard become requests, and answers find back to them. Pure.

A write request is one entry of the shard's log: puts come before deletes in it, and of each key
only the last change is told to watchers. So a request is cut where an operation would overtake an
earlier one, or would touch a node for the second time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from anabranch import limits
from anabranch.errors import ProtocolError
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.encoding import Puts
from anabranch.metadata.oxia.keys import is_path

SERVICE: Final = "/io.oxia.proto.v1.OxiaClient/"
ABSENT_VERSION: Final = -1
WriteOperation = pb.PutRequest | pb.DeleteRequest | pb.DeleteRangeRequest
Whole = pb.WriteRequest | Puts
"""A request that was made by whoever writes."""
WriteAnswer = pb.PutResponse | pb.DeleteResponse | pb.DeleteRangeResponse
M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """A message of that kind.

    Raises:
        ProtocolError: if the bytes are none.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolError(f"{kind.__name__} that cannot be read: {error}") from None
    return message


OnAnswer = Callable[[Any, str, Any], None]
"""Takes the owner of an operation, its key, and the answer."""
_RANKS: Final[dict[type, int]] = {pb.PutRequest: 0, pb.DeleteRequest: 1, pb.DeleteRangeRequest: 2}
"""The order in which a server carries out a request."""


class _Waiting(NamedTuple):
    operation: WriteOperation | Whole
    owner: Any
    on_answer: OnAnswer | None = None

    @property
    def key(self) -> str:
        operation: Any = self.operation
        key: str = operation.start_inclusive if _RANKS[type(operation)] == 2 else operation.key
        return key


class WriteQueue:
    """Operations that wait, and requests that are not answered yet."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._waiting: deque[_Waiting] = deque()
        self._in_flight: deque[list[_Waiting]] = deque()

    @property
    def under_way(self) -> bool:
        """Whether an answer is expected."""
        return bool(self._in_flight)

    @property
    def owners(self) -> list[Any]:
        """Whose operations wait or are under way."""
        sent = [item.owner for taken in self._in_flight for item in taken]
        return sent + [item.owner for item in self._waiting]

    def add(self, operation: WriteOperation, owner: Any, on_answer: OnAnswer | None = None) -> None:
        """Let an operation wait; `owner` is who gets the answer."""
        self._waiting.append(_Waiting(operation, owner, on_answer))

    def add_whole(self, request: Whole, owner: Any) -> None:
        """Let a request of several operations wait; its owner gets all answers in one."""
        self._waiting.append(_Waiting(request, owner))

    def take(self) -> Whole | None:
        """The next request to send; None if nothing waits or enough is under way."""
        if not self._waiting or len(self._in_flight) >= limits.OXIA_REQUESTS_IN_FLIGHT_MAX:
            return None
        first = self._waiting[0].operation
        if isinstance(first, Whole):
            self._in_flight.append([self._waiting.popleft()])
            return first
        taken: list[_Waiting] = []
        by_rank: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        keys: set[str] = set()
        size_bytes = last_rank = 0
        while self._waiting and len(taken) < limits.OXIA_REQUEST_OPERATIONS_MAX:
            item = self._waiting[0]
            rank = _RANKS.get(type(item.operation), -1)
            if rank < last_rank:
                break
            key = item.key
            size_bytes += item.operation.ByteSize()  # type: ignore[union-attr]
            if taken and (
                (key in keys and is_path(key)) or size_bytes > limits.OXIA_REQUEST_BYTES_MAX
            ):
                break
            last_rank = rank
            keys.add(key)
            taken.append(self._waiting.popleft())
            by_rank[rank].append(item.operation)
        self._in_flight.append(taken)
        puts, deletes, ranges = by_rank
        return pb.WriteRequest(shard=self._shard, puts=puts, deletes=deletes, delete_ranges=ranges)

    def answered(
        self, response: pb.WriteResponse
    ) -> Iterator[tuple[_Waiting, WriteAnswer | pb.WriteResponse]]:
        """The operations that the oldest request carried, each with its answer.

        Raises:
            ProtocolError: if nobody asked, or not as much.
        """
        if not self._in_flight:
            raise ProtocolError("an answer to a write that was never sent")
        taken = self._in_flight[0]
        whole = taken[0].operation
        if isinstance(whole, Whole):
            sent = len(whole.keys if isinstance(whole, Puts) else whole.puts)
            if sent != len(response.puts):
                raise ProtocolError(f"{len(response.puts)} answers to {sent} writes")
            self._in_flight.popleft()
            return iter([(taken[0], response)])
        answers: list[WriteAnswer] = [*response.puts, *response.deletes, *response.delete_ranges]
        if len(answers) != len(taken):
            raise ProtocolError(f"{len(answers)} answers to {len(taken)} writes")
        self._in_flight.popleft()
        return zip(taken, answers, strict=True)

    def lost(self) -> list[Any]:
        """The way is broken: whose operations were sent and will not be answered."""
        owners = [item.owner for taken in self._in_flight for item in taken]
        self._in_flight.clear()
        return owners

    def drop(self) -> list[Any]:
        """Give up what waits: whose operations were never sent."""
        owners = [item.owner for item in self._waiting]
        self._waiting.clear()
        return owners
