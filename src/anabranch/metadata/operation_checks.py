"""Which operations make no sense in themselves, and how a batch is cut into commands. Pure."""

from collections.abc import Iterator, Sequence

from anabranch import limits
from anabranch.errors import AnabranchError, InputError
from anabranch.metadata.paths import check_path
from anabranch.metadata.store import (
    Condition,
    IndexKey,
    Operation,
    Outcome,
    Put,
    Record,
)

_SOME_NUMBER = "0000000000"
_NUMBER_END = 2**62
"""Numbers below it can be counted up for ever and still fit the formats."""


def check_operation(operation: Operation) -> None:
    """Refuse what no state of the tree could accept.

    Raises:
        InvalidPath: if the path is none.
        InputError: if the value is too large, or options do not go together.
    """
    sequential = isinstance(operation, Put) and operation.sequential
    check_path(operation.path + _SOME_NUMBER if sequential else operation.path)
    if operation.guard is not None:
        check_path(operation.guard.path)
    if not isinstance(operation, Put):
        return
    _check_value(operation.path, operation.value)
    _check_indexes(operation.path, operation.indexes)
    if sequential and not isinstance(operation.expected, Condition):
        raise InputError(f"{operation.path}: a sequential node is always new, it has no version")
    if operation.path == "/" and operation.ephemeral:
        raise InputError("the root '/' cannot be ephemeral")


def check_record(record: Record, *, holds_access: bool = False) -> None:
    """Refuse a record that no store can have exported, or that this one would not keep whole.

    Raises:
        InputError: naming it.
    """
    path, value, version, created_ms, modified_ms, sequence, _, indexes, access = record
    if access and not holds_access:
        raise InputError(
            f"{path} has access rights, which this store does not hold: restore it without "
            "them only if everybody who reaches the store may read and write it"
        )
    check_path(path)
    if len(value) > limits.METADATA_VALUE_BYTES_MAX:
        _check_value(path, value)
    if indexes:
        _check_indexes(path, indexes)
    if not (0 <= version < _NUMBER_END and 0 <= sequence < _NUMBER_END):
        raise InputError(f"{path}: a version or sequence number that no store gives out")
    if not (-_NUMBER_END < created_ms < _NUMBER_END and -_NUMBER_END < modified_ms < _NUMBER_END):
        raise InputError(f"{path}: a time that is none")


def _check_value(path: str, value: bytes) -> None:
    if len(value) > limits.METADATA_VALUE_BYTES_MAX:
        raise InputError(
            f"the value for {path} has {len(value)} bytes, "
            f"at most {limits.METADATA_VALUE_BYTES_MAX} are allowed"
        )


def _check_indexes(path: str, indexes: tuple[IndexKey, ...]) -> None:
    if not indexes:
        return
    if len(indexes) > limits.METADATA_INDEXES_PER_NODE_MAX:
        raise InputError(
            f"{path} has {len(indexes)} secondary index keys, "
            f"at most {limits.METADATA_INDEXES_PER_NODE_MAX} are allowed"
        )
    if len(set(indexes)) != len(indexes):
        raise InputError(f"{path} has the same secondary index key twice")
    for entry in indexes:
        try:
            size_bytes = len(entry.index.encode()) + len(entry.key.encode())
        except UnicodeEncodeError:
            raise InputError(f"{path}: a secondary index key is no text") from None
        if not entry.index or size_bytes > limits.METADATA_INDEX_BYTES_MAX:
            raise InputError(
                f"{path}: a secondary index has a name, and with its key at most "
                f"{limits.METADATA_INDEX_BYTES_MAX} bytes"
            )


def _size_bytes(operation: Operation) -> int:
    size_bytes = len(operation.path) * 4
    if operation.guard is not None:
        size_bytes += len(operation.guard.path) * 4
    if isinstance(operation, Put):
        size_bytes += len(operation.value)
        if operation.indexes:
            size_bytes += limits.METADATA_INDEX_BYTES_MAX * len(operation.indexes)
    return size_bytes


def split_checked(
    operations: Sequence[Operation], outcomes: list[Outcome]
) -> Iterator[tuple[list[int], list[Operation]]]:
    """Cut a batch into commands of bounded size, leaving out what is wrong in itself.

    The refusals are written to `outcomes`; each command comes with the places of its operations.
    """
    places: list[int] = []
    command: list[Operation] = []
    size_bytes = 0
    for place, operation in enumerate(operations):
        try:
            check_operation(operation)
        except AnabranchError as refusal:
            outcomes[place] = refusal
            continue
        bytes_more = _size_bytes(operation)
        if command and (
            len(command) >= limits.METADATA_COMMAND_OPERATIONS_MAX
            or size_bytes + bytes_more > limits.METADATA_COMMAND_BYTES_MAX
        ):
            yield places, command
            places, command, size_bytes = [], [], 0
        places.append(place)
        command.append(operation)
        size_bytes += bytes_more
    if command:
        yield places, command
