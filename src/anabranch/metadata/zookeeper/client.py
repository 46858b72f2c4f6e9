"""ZooKeeper's own operations, as coroutines, below a chroot.

Refusals are `Refusal`s with ZooKeeper's codes; `store` says what they mean to the contract.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from anabranch import limits
from anabranch.errors import (
    ConfigError,
    InputError,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.metadata.paths import ROOT, ancestors_of
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.addresses import parse_ensemble
from anabranch.metadata.zookeeper.link import Link
from anabranch.metadata.zookeeper.readers import Readers
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Change, Code, Part, Refusal, ZStat
from anabranch.metadata.zookeeper.requests import (
    CREATOR_ACL,
    Flag,
    Request,
    Rights,
    Value,
    WatchMode,
)
from anabranch.runtime import Runtime
from anabranch.runtime.network import Tls

T = TypeVar("T")
_FRAME_BYTES = 64
"""What a request takes besides its body, generously."""


class ZooKeeperClient:
    """A session with an ensemble. Paths are below the chroot."""

    def __init__(
        self,
        runtime: Runtime,
        url: str,
        session_timeout_s: float,
        *,
        identities: Sequence[tuple[str, bytes]] = (),
        tls: Tls | None = None,
        on_changes: Callable[[list[Change]], None] = lambda changes: None,
        on_gap: Callable[[int], None] = lambda zxid: None,
    ) -> None:
        """Call `open` before anything else.

        Raises:
            ConfigError: if the URL is wrong, or says of TLS what `tls` says, too.
        """
        ensemble = parse_ensemble(url)
        if tls is not None and ensemble.tls is not None:
            raise ConfigError("TLS is set up by the URL and by the credentials: leave one out")
        self.servers = ensemble.servers
        self.chroot = ensemble.chroot
        self.request_bytes_max = ensemble.request_bytes_max
        self.exports_access = ensemble.exports_access
        self.new_acl = CREATOR_ACL if ensemble.closed else OPEN_ACL
        self._on_changes = on_changes
        self._prefix = "" if self.chroot == ROOT else self.chroot
        make_link = partial(
            Link,
            runtime,
            ensemble.servers,
            session_timeout_s,
            tls=tls or ensemble.tls,
            identities=identities,
        )
        self.link = make_link(on_changes=self._changed, on_gap=on_gap)
        self.readers = Readers(
            partial(make_link, on_changes=lambda changes: None, on_gap=lambda zxid: None),
            self.full(ROOT),
        )

    async def open(self) -> None:
        """See `Link.open`."""
        await self.link.open()

    async def find_chroot(self, *, make: bool) -> None:
        """See that the chroot is there; make it, and what is above it, only if told to.

        Raises:
            NotFound: if it is missing.
        """
        if self.chroot == ROOT:
            return
        try:
            await self.link.call(requests.sync(self.chroot))
            await self.link.call(requests.exists(self.chroot))
            return
        except Refusal as refusal:
            if refusal.code != Code.NO_NODE:
                raise
        if not make:
            names = ",".join(map(str, self.servers))
            raise NotFound(f"there is no node {self.chroot} in ZooKeeper at {names}")
        for full in (*ancestors_of(self.chroot), self.chroot):
            await self._make_if_missing(full)

    async def _make_if_missing(self, full: str) -> None:
        # What is above the chroot may be for others, too.
        acl = self.new_acl if full == self.chroot else OPEN_ACL
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            try:
                await self.link.call(requests.create(full, b"", acl=acl))
            except OutcomeUnknown:
                continue  # whether it was made then or now makes no difference
            except Refusal as refusal:
                # Rights are looked at before whether there is anything to be made.
                if refusal.code == Code.NO_AUTH:
                    await self._check_there(full, refusal)
                elif refusal.code != Code.NODE_EXISTS:
                    raise
            return
        raise Unreachable("ZooKeeper takes connections, but ends them before it answers")

    async def _check_there(self, full: str, refusal: Refusal) -> None:
        try:
            await self.link.call(requests.exists(full))
        except Refusal:
            raise refusal from None

    async def close(self) -> None:
        """See `Link.close`."""
        await self.readers.close()
        await self.link.close()

    # --- paths --------------------------------------------------------------------------------

    def full(self, path: str) -> str:
        """A path as the server knows it."""
        return (self._prefix + path if path != ROOT else self._prefix) or ROOT

    def local(self, full: str) -> str | None:
        """Undo `full`; None if it lies outside."""
        if not self._prefix or full == self._prefix:
            return full[len(self._prefix) :] or ROOT
        return full[len(self._prefix) :] if full.startswith(self._prefix + "/") else None

    def _changed(self, changes: list[Change]) -> None:
        inside = [
            change._replace(path=path)
            for change in changes
            if (path := self.local(change.path)) is not None
        ]
        if inside:
            self._on_changes(inside)

    # --- operations to be sent, alone or together ---------------------------------------------

    def op_create(
        self,
        path: str,
        value: bytes,
        flag: Flag = Flag.PERSISTENT,
        acl: Sequence[Acl] = OPEN_ACL,
        ttl_ms: int | None = None,
    ) -> Request[tuple[str, ZStat]]:
        """See `requests.create`; a sequential path may end in "/"."""
        full = self._prefix + path
        return requests.create(full, value, flag, acl, ttl_ms)

    def creating(self, acl: Sequence[Acl]) -> Callable[[str, bytes], Request[object]]:
        """See `requests.creating`."""
        return requests.creating(self._prefix, acl)

    def op_delete(self, path: str, version: int = requests.ANY_VERSION) -> Request[None]:
        """See `requests.delete`."""
        return requests.delete(self.full(path), version)

    def op_set(
        self, path: str, value: bytes, version: int = requests.ANY_VERSION
    ) -> Request[ZStat]:
        """See `requests.set_data`."""
        return requests.set_data(self.full(path), value, version)

    def op_check(self, path: str, version: int) -> Request[None]:
        """See `requests.check`."""
        return requests.check(self.full(path), version)

    def read_value(self, path: str) -> bytes:
        """A part of `multi_read` that asks for value and stat."""
        return requests.read_part(self.full(path))

    def _all_full(self, paths: Sequence[str]) -> Sequence[str]:
        if not self._prefix:
            return paths
        if ROOT in paths:
            return [self.full(path) for path in paths]
        return [self._prefix + path for path in paths]

    def read_names(self, path: str) -> bytes:
        """A part of `multi_read` that asks for the names of children."""
        return requests.read_part(self.full(path), children=True)

    def begin(self, request: Request[T], *, session: int | None = None) -> asyncio.Future[T]:
        """Send one operation with the next turn of the loop; see `Link.ask`.

        Raises:
            InputError: if the servers would not take it for its size.
        """
        if len(request.body) + _FRAME_BYTES > self.request_bytes_max:
            raise InputError(
                f"a request of {len(request.body)} bytes is more than the {self.request_bytes_max} "
                "that ZooKeeper takes: raise jute.maxbuffer there and in the URL"
            )
        return self.link.ask(request, session=session).answer

    async def send(self, request: Request[T], *, session: int | None = None) -> T:
        """Send one operation; see `Link.call`.

        Raises:
            InputError: if the servers would not take it for its size.
        """
        return await self.begin(request, session=session)

    # --- operations ---------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        value: bytes,
        flag: Flag = Flag.PERSISTENT,
        *,
        acl: Sequence[Acl] = OPEN_ACL,
        ttl_ms: int | None = None,
    ) -> tuple[str, ZStat]:
        """Make a node of any kind."""
        made, stat = await self.send(self.op_create(path, value, flag, acl, ttl_ms))
        return self.local(made) or made, stat

    async def delete(self, path: str, version: int = requests.ANY_VERSION) -> None:
        """Remove a node."""
        await self.send(self.op_delete(path, version))

    async def set_data(self, path: str, value: bytes, version: int = requests.ANY_VERSION) -> ZStat:
        """Write a value."""
        return await self.send(self.op_set(path, value, version))

    async def get_data(self, path: str) -> tuple[bytes, ZStat]:
        """Value and stat."""
        return await self.send(requests.get_data(self.full(path)))

    async def exists(self, path: str) -> ZStat:
        """The stat; a `Refusal` if there is no node."""
        return await self.send(requests.exists(self.full(path)))

    async def children(self, path: str) -> tuple[list[str], ZStat]:
        """Names in no order, and the stat."""
        return await self.send(requests.get_children2(self.full(path)))

    async def get_acl(self, path: str) -> tuple[tuple[Acl, ...], ZStat]:
        """Access rights and stat."""
        return await self.send(requests.get_acl(self.full(path)))

    def begin_acls(self, paths: Sequence[str]) -> list[asyncio.Future[list[Rights | Refusal]]]:
        """Ask for the access rights of many nodes; each answer may be why there are none."""
        full = self._all_full(paths)
        if self.readers.count:
            return self.readers.begin_acls(full)
        return [self.begin(requests.get_acls(full))]

    def begin_values(self, paths: Sequence[str]) -> list[asyncio.Future[list[Value | Refusal]]]:
        """Ask for the values of many nodes, with as few requests as the size allows."""
        pages = self._read_pages(requests.value_parts(self._all_full(paths)))
        return [self.begin(requests.get_values(page)) for page in pages]

    async def set_acl(
        self, path: str, acl: Sequence[Acl], version: int = requests.ANY_VERSION
    ) -> ZStat:
        """Replace the access rights."""
        return await self.send(requests.set_acl(self.full(path), acl, version))

    async def who_am_i(self) -> list[tuple[str, str]]:
        """The schemes of our identities, each with a name; an address is one, too."""
        return await self.send(requests.who_am_i())

    async def multi(
        self, operations: Sequence[Request[Any]], *, session: int | None = None
    ) -> list[Part]:
        """All or nothing; on a refusal each part says whether it was the one."""
        return await self.send(requests.multi(operations), session=session)

    async def multi_read(self, parts: Sequence[bytes]) -> list[Part]:
        """Reads made by `read_value` and `read_names`, with as few requests as the size allows."""
        answers = await asyncio.gather(*self.begin_reads(parts))
        return [part for answer in answers for part in answer]

    def begin_reads(self, parts: Sequence[bytes]) -> list[asyncio.Future[list[Part]]]:
        """Send such reads with the next turn of the loop."""
        return [self.begin(requests.multi_read(page)) for page in self._read_pages(parts)]

    def _read_pages(self, parts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        if sum(map(len, parts)) <= self.request_bytes_max // 2:
            yield parts
            return
        start = size_bytes = 0
        for place, part in enumerate(parts):
            size_bytes += len(part)
            if place > start and size_bytes > self.request_bytes_max // 2:
                yield parts[start:place]
                start, size_bytes = place, len(part)
        yield parts[start:]

    async def sync(self) -> int:
        """Let this server catch up with its leader; returns the zxid it is at then."""
        call = self.link.ask(requests.sync(self.full(ROOT)))
        await call.answer
        return call.zxid

    async def watch(self, path: str, mode: WatchMode = WatchMode.RECURSIVE) -> int:
        """Be told of changes, on every connection to come; returns from which zxid on."""
        full = self.full(path)
        call = self.link.ask(requests.add_watch(full, mode))
        await call.answer
        self.link.watches[full] = mode
        return call.zxid

    def watch_soon(self, path: str, on_told: Callable[[int], None]) -> asyncio.Future[None]:
        """Be told of changes again, recursively, whatever becomes of this connection.

        The function gets the zxid from which on they are told. If the server is not reached in
        time, there will be a gap when it is.
        """
        full = self.full(path)
        self.link.watches[full] = WatchMode.RECURSIVE
        call = self.link.ask(requests.add_watch(full, WatchMode.RECURSIVE))

        def answered(answer: asyncio.Future[None]) -> None:
            if answer.cancelled() or answer.exception() is not None:
                self.link.tell_gap()
            else:
                on_told(call.zxid)

        call.answer.add_done_callback(answered)
        return call.answer

    async def unwatch(self, path: str) -> None:
        """Undo `watch`."""
        full = self.full(path)
        self.link.watches.pop(full, None)
        try:
            await self.send(requests.remove_watches(full))
        except Refusal as refusal:
            if refusal.code != Code.NO_WATCHER:  # a later connection has none any more
                raise
