"""A load on a metadata store: writes, reads and a watch, each on record before it counts.

It sees the store through its contract alone, so any store can be put under it. Clients are tasks of
one process; a store that several processes can reach gets a handle for each of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from anabranch.errors import (
    AnabranchError,
    ConfigError,
    ConflictError,
    InputError,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.metadata.store import ABSENT, ANY, Expected, MetadataStore, Revision, Stat, Version
from anabranch.runtime import Entropy
from anabranch.runtime.tasks import Tasks
from anabranch.verify.metadata_records import (
    SUFFIX,
    Call,
    Counted,
    Done,
    Held,
    MetadataRecord,
    Note,
    Op,
    Read,
    RevisionTuple,
    Seen,
    VersionTuple,
    Watched,
    Watching,
    encode,
    header_line,
)
from anabranch.verify.records import Outcome

_PAUSE_S: Final = 0.2
_OPS: Final = (Op.PUT,) * 3 + (Op.CREATE,) + (Op.SWAP,) * 3 + (Op.DELETE,) + (Op.SEQUENCE,) * 2
_READS_IN_10: Final = 3
_LAST_WRITES_MAX: Final = 1000


class RecordSink(Protocol):
    """Where a client's records go; each is safe when `add` returns."""

    def add(self, record: MetadataRecord) -> None:
        """Stamp a record with the time and keep it."""
        ...

    def now_s(self) -> float:
        """The clock that stamps."""
        ...


class MetadataHistory:
    """The history file of one client."""

    def __init__(
        self, folder: Path, client: str, *, run: str, prefix: str, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._file: BinaryIO = (folder / f"{client}{SUFFIX}").open("xb", buffering=0)
        self._file.write(header_line(run=run, client=client, prefix=prefix))

    def add(self, record: MetadataRecord) -> None:
        """See `RecordSink.add`."""
        rest = memoryview(encode(record._replace(t=self.now_s())))
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def now_s(self) -> float:
        """See `RecordSink.now_s`."""
        return round(self._clock(), 6)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class MetadataLoad:
    """What is done to the store."""

    prefix: str
    keys: int = 20
    rate: float = 200.0
    """Operations per second of all clients together."""
    watch_s: float = 30.0
    """How long the last change may take to be seen."""

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ConfigError: naming the setting.
        """
        for name in ("keys", "rate", "watch_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")


class MetadataClient:
    """One participant: writes and reads at random, and puts everything on record."""

    def __init__(
        self, name: str, store: MetadataStore, sink: RecordSink, load: MetadataLoad
    ) -> None:
        self.name = name
        self.store = store
        self.counts = dict.fromkeys(Outcome, 0)
        self._sink = sink
        self._load = load
        self._number = 0
        self._known: dict[str, Version] = {}
        self.last_revision: RevisionTuple = (0, 0)
        """Of the last put that was acknowledged."""

    async def work(self, entropy: Entropy, stop: asyncio.Event, *, pause_s: float) -> None:
        """Do one thing after the other until told to stop."""
        while not stop.is_set():
            path = f"{self._load.prefix}/k{entropy.below(self._load.keys)}"
            if entropy.below(10) < _READS_IN_10:
                await self.read(path)
            else:
                await self.write(_OPS[entropy.below(len(_OPS))], path)
            await asyncio.sleep(entropy.uniform(0, 2 * pause_s))

    async def write(self, op: Op, path: str) -> Outcome:
        """Ask for one write; a conditional one without a known version reads first."""
        if op is Op.SEQUENCE:
            path = f"{self._load.prefix}/sequence/n-"
        version = self._known.pop(path, None) if op in (Op.SWAP, Op.DELETE) else None
        if op in (Op.SWAP, Op.DELETE) and version is None:
            await self.read(path)
            version = self._known.pop(path, None)
            if version is None:
                op = Op.CREATE
        self._number += 1
        value = "" if op is Op.DELETE else f"{self.name}/{self._number}"
        expected = version_tuple(version) if version is not None else None
        self._sink.add(Call(self._number, op, path, value, expected))
        try:
            stat = await self._ask(op, path, value, version)
        except (ConflictError, InputError, NotFound) as error:
            return self._done(Done(self._number, Outcome.FAIL, err=str(error)))
        except AnabranchError as error:
            return self._done(Done(self._number, Outcome.UNKNOWN, err=str(error)))
        if stat is None:
            return self._done(Done(self._number, Outcome.OK))
        self._known[stat.path] = stat.version
        revision = self.last_revision = revision_tuple(stat.revision)
        answer = version_tuple(stat.version)
        return self._done(Done(self._number, Outcome.OK, stat.path, answer, revision))

    async def _ask(self, op: Op, path: str, value: str, version: Version | None) -> Stat | None:
        if op is Op.DELETE:
            assert version is not None, "a delete names what it deletes"
            await self.store.delete(path, version)
            return None
        expected: Expected = ABSENT if op is Op.CREATE else ANY if version is None else version
        return await self.store.put(path, value.encode(), expected, sequential=op is Op.SEQUENCE)

    def _done(self, record: Done) -> Outcome:
        self._sink.add(record)
        self.counts[record.r] += 1
        return record.r

    async def read(self, path: str) -> None:
        """Read one node, after a sync, so that it must show all that was answered before."""
        begun = self._sink.now_s()
        try:
            await self.store.sync()
            node = await self.store.get(path)
        except (OutcomeUnknown, Unreachable):
            await asyncio.sleep(_PAUSE_S)  # a read that failed says nothing
            return
        if node is None:
            self._known.pop(path, None)
            self._sink.add(Read(path, None, None, None, begun))
            return
        self._known[path] = node.stat.version
        version, revision = version_tuple(node.stat.version), revision_tuple(node.stat.revision)
        self._sink.add(Read(path, value_text(node.value), version, revision, begun))

    async def watch(self, since: Revision, reached: Callable[[RevisionTuple], None]) -> None:
        """Put every change below the prefix on record; `reached` is told its revision."""
        self._sink.add(Watching(revision_tuple(since)))
        async for event in self.store.watch(self._load.prefix, since):
            revision = revision_tuple(event.revision)
            self._sink.add(Seen(event.kind.value, event.path, revision))
            reached(revision)

    async def record_end(self) -> None:
        """Put all that the store holds below the prefix on record."""
        await self.store.sync()
        nodes = 0
        async for node in self.store.scan(self._load.prefix):
            stat = node.stat
            version, revision = version_tuple(stat.version), revision_tuple(stat.revision)
            self._sink.add(Held(stat.path, value_text(node.value), version, revision))
            nodes += 1
        self._sink.add(Counted(nodes))

    def note(self, name: str, about: str = "") -> None:
        """Put a fault or a phase on record."""
        self._sink.add(Note(name, about))

    def watched(self, revision: RevisionTuple, *, complete: bool) -> None:
        """Put the end of the watch on record."""
        self._sink.add(Watched(revision, complete))


class MetadataWorkload:
    """One run: `start`, let it run, `finish`, always `close`."""

    def __init__(
        self,
        clients: Sequence[MetadataClient],
        load: MetadataLoad,
        entropy: Entropy,
    ) -> None:
        load.check()
        self.clients = clients
        self.failure: BaseException | None = None
        self._load = load
        self._entropy = entropy
        self._stop = asyncio.Event()
        self._tasks = Tasks(self._failed)
        self._working: list[asyncio.Task[None]] = []
        self._seen: RevisionTuple = (0, 0)
        self._news = asyncio.Event()

    def _failed(self, _: str, failure: BaseException) -> None:
        self.failure = self.failure or failure
        self._news.set()

    async def start(self) -> None:
        """Make the nodes that the others are made below, watch, and let the clients work.

        Raises:
            AnabranchError: if the store does not take the first writes.
        """
        first = self.clients[0]
        since = await first.store.revision()
        self._seen = revision_tuple(since)
        self._tasks.spawn("watch", first.watch(since, self._reached))
        for path in (self._load.prefix, f"{self._load.prefix}/sequence"):
            if await first.write(Op.PUT, path) is not Outcome.OK:
                raise OutcomeUnknown(f"the store did not acknowledge the first write, of {path}")
        pause_s = len(self.clients) / self._load.rate
        for client in self.clients:
            work = client.work(self._entropy, self._stop, pause_s=pause_s)
            self._working.append(self._tasks.spawn(client.name, work))

    def _reached(self, revision: RevisionTuple) -> None:
        self._seen = max(self._seen, revision)
        self._news.set()

    @property
    def counts(self) -> dict[Outcome, int]:
        """What became of the writes so far."""
        return {how: sum(client.counts[how] for client in self.clients) for how in Outcome}

    async def finish(self) -> None:
        """Stop the clients, wait for the watch to arrive, and put the end state on record.

        Raises:
            AnabranchError: if the store does not answer any more.
        """
        self._stop.set()
        if self._working:
            await asyncio.wait(self._working)
        self.raise_failure()
        first = self.clients[0]
        last = self._seen
        with suppress(TimeoutError):
            async with asyncio.timeout(self._load.watch_s):
                last = await self._last_write(first)
                while self._seen < last and self.failure is None:
                    self._news.clear()
                    await self._news.wait()
        first.watched(last, complete=self._seen >= last)
        await first.record_end()
        self.raise_failure()

    async def _last_write(self, client: MetadataClient) -> RevisionTuple:
        """Write once more and return the revision of that write."""
        for _ in range(_LAST_WRITES_MAX):
            if await client.write(Op.PUT, self._load.prefix) is Outcome.OK:
                return client.last_revision
            await asyncio.sleep(_PAUSE_S)
        raise OutcomeUnknown("the store acknowledges nothing any more")

    def raise_failure(self) -> None:
        """Raise what the first failed task failed with, if one did."""
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """End every task; the stores and histories belong to who made them."""
        self._stop.set()
        await self._tasks.close()


def version_tuple(version: Version) -> VersionTuple:
    """Return a version as it is written down."""
    return version.epoch, version.native, version.life


def revision_tuple(revision: Revision) -> RevisionTuple:
    """Return a revision as it is written down."""
    return revision.epoch, revision.index


def value_text(value: bytes) -> str:
    """Return a value as it is written down."""
    return value.decode(errors="backslashreplace")
