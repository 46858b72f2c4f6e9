"""Numbers that only rise, for any number of processes that share a store.

`SequentialCounter` asks the store for every number. `BlockCounter` keeps a document and takes many
numbers with one write of it, so that most cost nothing; it needs conditional writes only and moves
from store to store like any document. Neither hands out a number twice: a number whose fate is not
known, because an answer was lost or a process ended, is never used. Gaps are harmless, repeats are
not.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    ConflictError,
    FormatError,
    InputError,
    OutcomeUnknown,
)
from anabranch.metadata.backoff import Backoff
from anabranch.metadata.store import ABSENT, Expected, Guard, MetadataStore
from anabranch.runtime import Runtime

_DOCUMENT_VERSION = 1


class Numbering(Enum):
    """How a node numbers those who draw from it."""

    BY_CHILDREN = "children"
    """Each makes a sequential child: ZooKeeper, and our own stores."""
    BY_CHANGES = "changes"
    """Each writes the node, and takes the count of its changes: Pulsar on Oxia."""


def numbering_of(metadata_url: str) -> Numbering:
    """How brokers and clients of a cluster number what they draw whose metadata are at a URL."""
    return Numbering.BY_CHANGES if metadata_url.startswith("oxia:") else Numbering.BY_CHILDREN


class SequentialCounter:
    """Numbers by sequential nodes below a path: one write each, and one to tidy up."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._prefix = f"{path}/n"

    async def next(self) -> int:
        """Return a number above every one returned before, here or elsewhere.

        Raises:
            OutcomeUnknown: if the answer was lost. The number it would have been is not used.
            SessionExpired: if there is no session now.
        """
        # Ephemeral: what is left of an unanswered request goes with the session.
        stat = await self._store.put(self._prefix, b"", ephemeral=True, sequential=True)
        # The number is ours in any case, and a node that stays goes with the session.
        with suppress(AnabranchError):
            await self._store.delete(stat.path)
        return int(stat.path[len(self._prefix) :])


class BlockCounter:
    """Numbers by a document that says which is the lowest one nobody has taken."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        path: str,
        *,
        document_format: str,
        block: int,
        first: int = 0,
        guard: Callable[[], Guard] | None = None,
    ) -> None:
        """With `guard`, blocks are taken only while it holds; it raises if it does not."""
        if not 1 <= block <= limits.COUNTER_BLOCK_MAX:
            raise InputError(f"a block has 1 to {limits.COUNTER_BLOCK_MAX} numbers, not {block}")
        self._store = store
        self._runtime = runtime
        self._path = path
        self._format = document_format
        self._block = block
        self._first = first
        self._guard = guard
        self._following = 0
        self._end = 0
        self._writing: asyncio.Future[None] | None = None

    async def next(self) -> int:
        """Return a number above every one this process got before, and that nobody else gets.

        Raises:
            FormatError: if the document is of an unknown format.
            ConflictError: if others keep changing it, or all numbers are used up.
            Fenced: if the guard does not hold.
            Unreachable: if there is no connection to the store.
        """
        while self._following == self._end:
            if await self._alone():
                with self._turn():
                    end = await self._advance(0, self._block)
                    self._following, self._end = end - self._block, end
        number = self._following
        self._following += 1
        return number

    async def issued_below(self) -> int:
        """Every number that anybody ever got is below this one.

        Raises:
            FormatError: if the document is of an unknown format.
        """
        node = await self._store.get(self._path)
        return self._first if node is None else self._decode(node.value)

    async def raise_floor(self, floor: int) -> None:
        """Make every number from now on at least `floor`, in this and all other processes.

        Other processes must not hold blocks below the floor: call it before they start.
        """
        while not await self._alone():
            pass
        with self._turn():
            await self._advance(floor, 0)
            self._following = self._end = 0

    async def _alone(self) -> bool:
        """Whether nobody writes the document now; if somebody does, wait for them and say no."""
        if self._writing is None:
            return True
        await asyncio.wait([self._writing])
        return False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The time in which one caller writes the document and others wait."""
        self._writing = writing = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._writing = None
            writing.set_result(None)

    async def _advance(self, floor: int, count: int) -> int:
        backoff = Backoff(self._path, self._runtime.clock, self._runtime.entropy)
        while True:
            node = await self._store.get(self._path)
            following = self._first if node is None else self._decode(node.value)
            end = max(following, floor) + count
            if end == following:
                return end
            if end > limits.COUNTER_VALUE_MAX:
                raise ConflictError(f"{self._path} is at {following}: no numbers are left")
            expected: Expected = ABSENT if node is None else node.stat.version
            guard = None if self._guard is None else self._guard()
            try:
                await self._store.put(self._path, self._encode(end), expected, guard=guard)
            except (BadVersion, OutcomeUnknown):
                await backoff.wait()  # what an unanswered write took, nobody uses
            else:
                return end

    def _decode(self, value: bytes) -> int:
        try:
            document = json.loads(value)
        except ValueError:
            raise FormatError(f"{self._path} is not JSON: {value[:40]!r}") from None
        if not isinstance(document, dict) or document.get("format") != self._format:
            raise FormatError(f"{self._path} is not a document of format {self._format}")
        version = document.get("version")
        if version != _DOCUMENT_VERSION:
            raise FormatError(
                f"{self._path} has version {version!r}; this build knows {_DOCUMENT_VERSION}"
            )
        following = document.get("next")
        if type(following) is not int or following < 0:
            raise FormatError(f"{self._path} has no usable counter: {following!r}")
        return following

    def _encode(self, following: int) -> bytes:
        document = {"format": self._format, "version": _DOCUMENT_VERSION, "next": following}
        return json.dumps(document).encode()
