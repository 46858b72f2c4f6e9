"""How operations on one shard become requests, and answers find back to them. Pure.

A write request is one entry of the shard's log: puts come before deletes in it, and of each key
only the last change is told to watchers. So a request is cut where an operation would overtake an
earlier one, or would touch a node for the second time.
"""

from collections import deque
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


class _Waiting(NamedTuple):
    operation: WriteOperation | Whole
    owner: Any


def _rank(operation: WriteOperation) -> int:
    if isinstance(operation, pb.PutRequest):
        return 0
    return 1 if isinstance(operation, pb.DeleteRequest) else 2


def _key(operation: WriteOperation) -> str:
    return operation.start_inclusive if _rank(operation) == 2 else operation.key  # type: ignore[union-attr]


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

    def add(self, operation: WriteOperation, owner: Any) -> None:
        """Let an operation wait; `owner` is who gets the answer."""
        self._waiting.append(_Waiting(operation, owner))

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
        request = pb.WriteRequest(shard=self._shard)
        taken: list[_Waiting] = []
        keys: set[str] = set()
        size_bytes = rank = 0
        while self._waiting and len(taken) < limits.OXIA_REQUEST_OPERATIONS_MAX:
            operation = self._waiting[0].operation
            if isinstance(operation, Whole):
                break
            size_bytes += operation.ByteSize()
            if taken and (
                _rank(operation) < rank
                or (_key(operation) in keys and is_path(_key(operation)))
                or size_bytes > limits.OXIA_REQUEST_BYTES_MAX
            ):
                break
            rank = _rank(operation)
            keys.add(_key(operation))
            taken.append(self._waiting.popleft())
            if isinstance(operation, pb.PutRequest):
                request.puts.append(operation)
            elif isinstance(operation, pb.DeleteRequest):
                request.deletes.append(operation)
            else:
                request.delete_ranges.append(operation)
        self._in_flight.append(taken)
        return request

    def answered(
        self, response: pb.WriteResponse
    ) -> list[tuple[Any, WriteAnswer | pb.WriteResponse]]:
        """Whose operations the oldest request carried, each with its answer.

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
            return [(taken[0].owner, response)]
        answers: list[WriteAnswer] = [*response.puts, *response.deletes, *response.delete_ranges]
        if len(answers) != len(taken):
            raise ProtocolError(f"{len(answers)} answers to {len(taken)} writes")
        self._in_flight.popleft()
        return [(item.owner, answer) for item, answer in zip(taken, answers, strict=True)]

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
