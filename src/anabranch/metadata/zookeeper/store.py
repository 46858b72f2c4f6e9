"""The metadata store on ZooKeeper. Only the factory names it.

What ZooKeeper cannot do as the contract says is told in `docs/internals/zookeeper.md`: an export is
not of one moment, and of what is restored, times and large versions are not kept.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, InvalidPath
from anabranch.metadata.operation_checks import check_operation
from anabranch.metadata.paths import ROOT, check_path
from anabranch.metadata.session_news import SessionListener
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
    Expected,
    Fencing,
    Guard,
    IndexKey,
    Node,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    Stat,
)
from anabranch.metadata.watching import EventHistory, Readership, Watch
from anabranch.metadata.zookeeper.batches import write_together
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.closing import Closing
from anabranch.metadata.zookeeper.exporting import export, export_one
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.naming import (
    events_of,
    is_hidden,
    revision_of,
    shown,
    stat_of,
)
from anabranch.metadata.zookeeper.open_notes import OpenNotes
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Change, Code, Refusal, ZStat
from anabranch.metadata.zookeeper.restoring import Restoring
from anabranch.metadata.zookeeper.rights_probe import RightsProbe
from anabranch.metadata.zookeeper.unwatched import Unwatched
from anabranch.metadata.zookeeper.walking import ValueWalk
from anabranch.metadata.zookeeper.writing import Writer
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls


class ZooKeeperStore:
    """See `MetadataStore`."""

    fencing = Fencing.SERVER

    def __init__(
        self,
        runtime: Runtime,
        url: str,
        session_timeout_s: float,
        identities: Sequence[tuple[str, bytes]],
        tls: Tls | None,
    ) -> None:
        """Use `open`."""
        self.client = ZooKeeperClient(
            runtime,
            url,
            session_timeout_s,
            identities=identities,
            tls=tls,
            on_changes=self._changed,
            on_gap=self._missed,
        )
        self._at_top = self.client.chroot == ROOT
        self._history = EventHistory(revision_of(0))
        self._unwatched = Unwatched(self.client, self._history)
        self._readership = Readership()
        self._indexes = IndexNodes(self.client)
        self._writer = Writer(self.client, self._indexes, runtime.entropy)
        # See `HoldsRights`.
        closing = Closing(self.client)
        self.set_rights, self.close_made = closing.close, closing.close_made
        self.open_notes = OpenNotes(self.client)
        self.why_no_rights = RightsProbe(self.client).why_not
        # See `ReadsSideBySide`.
        readers = self.client.readers
        self.open_readers, self.close_readers = readers.open, readers.close
        self._closed = False

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        url: str,
        *,
        session_timeout_s: float = limits.METADATA_SESSION_TIMEOUT_S,
        identities: Sequence[tuple[str, bytes]] = (),
        tls: Tls | None = None,
        may_make: bool = True,
    ) -> "ZooKeeperStore":
        """Connect to a server of `zk:host:port,.../chroot`; make the chroot if it is missing.

        Args:
            runtime: the doors.
            url: see `addresses`.
            session_timeout_s: what to ask for; the servers have bounds of their own.
            identities: pairs such as ("digest", b"user:password") to act as; with "sasl" the
                password is proven by DIGEST-MD5 and not sent.
            tls: instead of the options in the URL.
            may_make: whether a missing chroot is made; otherwise it is refused.

        Raises:
            ConfigError: if the URL is wrong, or the credentials are.
            NotFound: if the chroot is missing and must not be made.
            Unreachable: if no server answers.
        """
        store = cls(runtime, url, session_timeout_s, identities, tls)
        await store.client.open()
        try:
            await store.client.find_chroot(make=may_make)
            store._history.begin(revision_of(await store.client.watch(ROOT)))
        except Refusal as refusal:
            await store.client.close()
            raise meaning(refusal, store.client.chroot) from None
        except BaseException:
            await store.client.close()
            raise
        return store

    # --- the session --------------------------------------------------------------------------

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`: servers that are away may come back."""
        return None

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self.client.link.session.number

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`."""
        return self.client.link.session.timeout_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return self.client.link.session.valid_until_s

    def session_events(self) -> SessionListener:
        """See `MetadataStore.session_events`."""
        self._check_open()
        return self.client.link.news.listen()

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.client.close()
        finally:
            self._history.end(self._readership)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")

    # --- reading ------------------------------------------------------------------------------

    def _node(self, path: str, value: bytes, stat: ZStat) -> Node:
        return Node(value, stat_of(path, stat, self.session))

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`; `Unreachable` if no server answers."""
        self._check_open()
        try:
            return self._node(path, *await self.client.get_data(check_path(path)))
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return None
            raise meaning(refusal, path) from None

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        self._check_open()
        try:
            await self.client.exists(check_path(path))
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return False
            raise meaning(refusal, path) from None
        return True

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        self._check_open()
        try:
            names, _ = await self.client.children(check_path(path))
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return []
            raise meaning(refusal, path) from None
        return shown(path, names, at_top=self._at_top)

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        self._check_open()
        return self._scan(check_path(prefix))

    async def _scan(self, prefix: str) -> AsyncIterator[Node]:
        try:
            async for page in ValueWalk(self.client).pages(prefix):
                for path, value, stat in page:
                    yield self._node(path, value, stat)
        except Refusal as refusal:
            raise meaning(refusal, f"a node at or below {prefix}") from None

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`; reads the keys of all nodes that have any."""
        self._check_open()
        return self._scan_index(index, first, last)

    async def _scan_index(self, index: str, first: str, last: str | None) -> AsyncIterator[Node]:
        async for path, value, stat in self._indexes.find(index, first, last):
            yield self._node(path, value, stat)

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        self._check_open()
        await self.client.sync()

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`: of the last change below the chroot."""
        self._check_open()
        zxid = await self.client.sync()
        return revision_of(zxid) if self._history.blind else self._history.newest

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`.

        Watches tell nothing of access rights, so this is the point the whole ensemble is at.
        """
        self._check_open()
        return revision_of(await self.client.sync())

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`, but each node is as of when its turn came.

        Changes meanwhile are those of `changed_since` a revision from before the call.
        """
        self._check_open()
        prefix = check_path(prefix)
        return export(self.client, self._indexes, prefix, access=access, values=values)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        self._check_open()
        return await export_one(self.client, self._indexes, check_path(path))

    # --- watching -----------------------------------------------------------------------------

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`.

        Changes that ZooKeeper made in one moment have one revision; who resumes from it is told
        all of them again. Without `since`, changes by others that this process had not heard of
        yet are told, too.
        """
        self._check_open()
        check_path(prefix)
        history = self._history
        history.read_along()
        if since is None:
            return history.watch(prefix, None, self._readership)
        number = history.number_after(since)
        first = number
        while first > 0 and (event := history.event_at(first - 1)) and event.revision == since:
            first -= 1
        return Watch(history, prefix, first if number - first > 1 else number, self._readership)

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`: what this handle has watched, else a gap."""
        self._check_open()
        return self._history.changed_since(since, check_path(prefix))

    def _changed(self, changes: list[Change]) -> None:
        if any(change.zxid <= 0 for change in changes):
            # Servers before 3.9 do not say when a change happened.
            self._missed(max(self.client.link.session.zxid_seen, self._history.newest.index + 1))
            return
        self._history.publish(events_of(changes, at_top=self._at_top))

    def _missed(self, zxid: int) -> None:
        self._history.forget(revision_of(zxid))

    # --- writing ------------------------------------------------------------------------------

    def _check(self, operation: Operation) -> None:
        check_operation(operation)
        if is_hidden(operation.path, at_top=self._at_top):
            raise InvalidPath(
                f"the name is reserved in a store on ZooKeeper: {operation.path[:80]!r}"
            )

    async def put(
        self,
        path: str,
        value: bytes,
        expected: Expected = ANY,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        indexes: tuple[IndexKey, ...] = (),
        guard: Guard | None = None,
    ) -> Stat:
        """See `MetadataStore.put`."""
        self._check_open()
        put = Put(path, value, expected, ephemeral, sequential, indexes, guard)
        self._check(put)
        stat = await self._writer.write(put)
        assert stat is not None
        return stat

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        self._check_open()
        delete = Delete(path, expected, guard)
        self._check(delete)
        await self._writer.write(delete)

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`: requests of their own, under way together."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        checked: list[tuple[int, Operation]] = []
        for place, operation in enumerate(operations):
            try:
                self._check(operation)
                checked.append((place, operation))
            except AnabranchError as refusal:
                outcomes[place] = refusal
        await write_together(self._writer, self.exists, checked, outcomes)
        return outcomes

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`; see `restoring` for what is not kept."""
        return await self._restore(records, closes=True)

    async def restore_open(self, records: AsyncIterator[Record]) -> int:
        """See `HoldsRights.restore_open`."""
        return await self._restore(records, closes=False)

    async def restore_alone(self, records: AsyncIterator[Record]) -> int:
        """See `RestoresAlone.restore_alone`."""
        return await self._restore(records, closes=False, alone=True)

    async def _restore(
        self, records: AsyncIterator[Record], *, closes: bool, alone: bool = False
    ) -> int:
        self._check_open()
        restoring = Restoring(self.client, self._indexes, self._writer, closes=closes, alone=alone)
        async with aclosing(self._unwatched.counted(records)) as counted:  # type: ignore[type-var]
            return await restoring.run(counted)
