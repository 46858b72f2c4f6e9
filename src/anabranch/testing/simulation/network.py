"""The simulated network: machines with ports, links between them, partitions.

`ProcessNetwork` is the door one process gets; `SimulatedNetwork` is what scenarios and the nemesis
turn: it cuts and heals links, slows them, resets connections, refuses new ones.
"""

import asyncio
import errno
import itertools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.runtime.network import Connection, ConnectionHandler, ServerTls, Tls
from anabranch.testing.simulation.streams import Endpoint, Link

if TYPE_CHECKING:
    from anabranch.testing.simulation.process import Incarnation, Machine
    from anabranch.testing.simulation.world import World

_SYN_RETRIES_S = (1.0, 2.0, 4.0, 8.0)
_OWN_NAMES = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1"})
_FIRST_FREE_PORT = 49152


class SimulatedListener:
    """An open port of a simulated machine."""

    def __init__(
        self, owner: "Incarnation", port: int, factory: Callable[[], ConnectionHandler]
    ) -> None:
        self.owner = owner
        self.port = port
        self.factory = factory

    async def close(self) -> None:
        """See `Listener.close`."""
        if self.owner.alive:
            self.remove()

    def remove(self) -> None:
        """Free the port, if it is still ours."""
        listeners = self.owner.machine.listeners
        if listeners.get(self.port) is self:
            del listeners[self.port]


class Partition:
    """Links that are cut until `heal`."""

    def __init__(self, network: "SimulatedNetwork", links: list[Link], name: str) -> None:
        self._network = network
        self._links = links
        self.name = name

    def heal(self) -> None:
        """Let bytes pass again; once healed, healing again changes nothing."""
        if self._links:
            for link in self._links:
                link.cuts -= 1
            self._links = []
            self._network.links_changed(f"heal {self.name}")


class SimulatedNetwork:
    """All links of a world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._links: dict[tuple[str, str], Link] = {}
        self._partitions: list[Partition] = []
        self._ports = itertools.count(_FIRST_FREE_PORT)

    def link(self, source: str, target: str) -> Link:
        """The direction from one machine to another."""
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            rng = self._world.rng(f"link {source}>{target}")
            link = Link(rng, self._world.conditions, loopback=source == target)
            self._links[key] = link
        return link

    def free_port(self) -> int:
        """A port nobody uses."""
        return next(self._ports)

    def endpoints(self) -> list[Endpoint]:
        """Every open end, in the order of their processes and of opening."""
        return [
            endpoint
            for process in self._world.processes.values()
            if process.incarnation is not None
            for endpoint in process.incarnation.endpoints
        ]

    def partition(
        self, side: Iterable[str], other: Iterable[str], *, one_way: bool = False
    ) -> Partition:
        """Cut the links from machines of one side to those of the other, and back.

        With `one_way` bytes still come from `other` to `side`, but not from `side` to `other`.
        """
        left, right = list(side), list(other)
        assert not set(left) & set(right), "a machine cannot be cut from itself"
        links = [self.link(a, b) for a in left for b in right]
        if not one_way:
            links += [self.link(b, a) for a in left for b in right]
        name = f"{','.join(left)} {'>' if one_way else '|'} {','.join(right)}"
        for link in links:
            link.cuts += 1
        partition = Partition(self, links, name)
        self._partitions.append(partition)
        self.links_changed(f"partition {name}")
        return partition

    def heal(self) -> None:
        """Heal every partition."""
        partitions, self._partitions = self._partitions, []
        for partition in partitions:
            partition.heal()

    def slow_down(self, factor: float) -> None:
        """Make every delay between machines, present and future links alike, longer; 1 undoes."""
        self._world.trace.record(f"network slowness {factor}")
        names = list(self._world.machines)
        for source in names:
            for target in names:
                if source != target:
                    self.link(source, target).slowness = factor

    def links_changed(self, what: str) -> None:
        """Write it down and let every connection decide anew."""
        self._world.trace.record(what)
        for endpoint in self.endpoints():
            endpoint.links_changed()

    def resolve(self, host: str, caller: "Machine") -> "Machine":
        """The machine of that name.

        Raises:
            OSError: if there is none.
        """
        if host in _OWN_NAMES:
            return caller
        machine = self._world.machines.get(host)
        if machine is None:
            raise OSError(errno.EHOSTUNREACH, f"no machine of the world is called {host!r}")
        return machine


class ProcessNetwork:
    """The `Network` of one process."""

    def __init__(self, owner: "Incarnation", network: SimulatedNetwork) -> None:
        self._owner = owner
        self._network = network

    def renew_tls(self) -> bool:
        """See `Network.renew_tls`."""
        return False

    async def listen(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: ServerTls | None = None,
    ) -> SimulatedListener:
        """See `Network.listen`."""
        assert tls is None, "the simulated network has nobody who listens in"
        await self._owner.stay_alive()
        machine = self._owner.machine
        if self._network.resolve(host, machine) is not machine:
            raise OSError(errno.EADDRNOTAVAIL, f"{host!r} is not an address of {machine.name}")
        port = port or self._network.free_port()
        if port in machine.listeners:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: port {port}")
        listener = SimulatedListener(self._owner, port, handler_factory)
        machine.listeners[port] = listener
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: Tls | None = None,
    ) -> ConnectionHandler:
        """See `Network.connect`."""
        assert tls is None, "the simulated network has nobody who listens in"
        owner, network = self._owner, self._network
        await owner.stay_alive()
        target = network.resolve(host, owner.machine)
        out = network.link(owner.machine.name, target.name)
        back = network.link(target.name, owner.machine.name)
        await self._reach(target, out, back)
        await asyncio.sleep(out.delay())
        listener = target.listeners.get(port) if target.up else None
        if listener is None or target.refusing:
            await asyncio.sleep(back.delay())
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refused to connect")
        endpoint = self._join(listener, out, back, (target.name, port))
        try:
            await asyncio.sleep(back.delay())
            if endpoint.closed:
                raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port} reset the connection")
            handler = handler_factory()
            endpoint.open(handler)
            # As on a real loop, the first bytes may come before the caller goes on.
            await asyncio.sleep(out.rng.choice((0.0, 2 * back.delay())))
        except BaseException:
            endpoint.abort()
            raise
        return handler

    async def start_tls(
        self, connection: Any, handler: ConnectionHandler, tls: Tls, *, host: str
    ) -> Connection:
        """See `Network.start_tls`."""
        raise AssertionError("the simulated network has nobody who listens in")

    async def _reach(self, target: "Machine", out: Link, back: Link) -> None:
        for wait_s in _SYN_RETRIES_S:
            if target.up and not out.cuts and not back.cuts:
                return
            await asyncio.sleep(wait_s)
        raise TimeoutError(errno.ETIMEDOUT, f"{target.name} does not answer")

    def _join(
        self, listener: SimulatedListener, out: Link, back: Link, remote: tuple[str, int]
    ) -> Endpoint:
        """Make both ends; the far one is accepted by its process as soon as that runs."""
        owner, trace = self._owner, self._owner.trace
        local = (owner.machine.name, self._network.free_port())
        ours = Endpoint(owner, out, trace, local, remote)
        theirs = Endpoint(listener.owner, back, trace, remote, local)
        ours.peer, theirs.peer = theirs, ours
        trace.record(f"connect {theirs.name}")

        def accept() -> None:
            if not theirs.closed:
                theirs.open(listener.factory())

        owner.loop.call_soon(accept, context=listener.owner.context)
        return ours
