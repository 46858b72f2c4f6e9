"""What the stores whose tree lives in this process share: reads, watches, checks of input."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, InputError
from anabranch.metadata.paths import check_path
from anabranch.metadata.store import Event, Node, Operation, Outcome, Put, Revision
from anabranch.metadata.tree import Tree, stat_of
from anabranch.metadata.watching import EventHistory


class LocalTreeReads:
    """The reading half of the contract, over a tree of committed state."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._history = EventHistory(tree.revision)
        self._closed = False
        self._failure: AnabranchError | None = None

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`."""
        return self._failure

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        self._check_open()
        return self._tree.get(check_path(path))

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        self._check_open()
        return self._tree.exists(check_path(path))

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        self._check_open()
        return self._tree.children(check_path(path))

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        self._check_open()
        return self._scan(check_path(prefix))

    async def _scan(self, prefix: str) -> AsyncIterator[Node]:
        page = self._tree.page(prefix, None)
        while page:
            for path, entry in page:
                yield Node(entry.value, stat_of(path, entry))
            await asyncio.sleep(0)
            self._check_open()
            page = self._tree.page(prefix, page[-1][0])

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`."""
        self._check_open()
        return self._history.watch(check_path(prefix), since)

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        self._check_open()
        return self._tree.revision


def check_operation(operation: Operation) -> None:
    """Refuse what no state of the tree could accept.

    Raises:
        InvalidPath: if the path is none.
        InputError: if the value is too large.
    """
    check_path(operation.path)
    if isinstance(operation, Put) and len(operation.value) > limits.METADATA_VALUE_BYTES_MAX:
        raise InputError(
            f"the value for {operation.path} has {len(operation.value)} bytes, "
            f"at most {limits.METADATA_VALUE_BYTES_MAX} are allowed"
        )


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
        bytes_more = len(operation.path) * 4
        if isinstance(operation, Put):
            bytes_more += len(operation.value)
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
