"""A cluster whose metadata store can be replaced: our brokers on ZooKeeper, and an empty Oxia.

The bookie registers in a store of its own and takes no part, or bookies register in the store that
is replaced, and are led.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.testing.servers.bookkeeper import BookKeeper, bookkeeper
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers
from anabranch.testing.servers.oxia import Oxia, oxia
from anabranch.testing.servers.zookeeper import ZooKeeper, zookeeper

_MEMORY: Final = ("-Xmx256m",)


@dataclass(frozen=True, slots=True)
class ReplaceableCluster:
    """Running servers."""

    source: ZooKeeper
    target: Oxia
    brokers: OurBrokers
    bookies: BookKeeper

    @property
    def web_urls(self) -> list[str]:
        """Of every broker."""
        return [f"http://127.0.0.1:{port}" for port in self.brokers.web_ports]


@contextmanager
def replaceable_cluster(
    folder: Path,
    brokers: int = 2,
    *,
    bookies: int = 1,
    ensemble: int = 1,
    session_timeout_s: float = 6.0,
    source_memory: tuple[str, ...] = _MEMORY,
    source_settings: Mapping[str, str] | None = None,
    broker_options: Sequence[str] = (),
) -> Iterator[ReplaceableCluster]:
    """Run everything for as long as the body runs; logs stay in the folder.

    Each entry is on `ensemble` bookies.
    `source_memory` and `source_settings` are those of ZooKeeper, see its launcher;
    `broker_options` are added to the commands of the brokers.

    Raises:
        ServerFailed: if a server does not become ready.
    """
    with ExitStack() as held:
        source = held.enter_context(
            zookeeper(memory=source_memory, settings=source_settings, folder=folder / "source")
        )
        target = held.enter_context(oxia(folder=folder / "target"))
        registry = held.enter_context(oxia(folder=folder / "registry"))
        init_cluster(source.url)
        init_cluster(registry.url)
        others = held.enter_context(bookkeeper(registry.url, bookies, folder=folder / "bookies"))
        running = held.enter_context(
            our_brokers(
                source.url,
                brokers,
                ledgers_url=f"bookkeeper:{registry.url}{_copies(ensemble)}",
                options=(*_options(session_timeout_s, target), *broker_options),
                folder=folder / "brokers",
            )
        )
        yield ReplaceableCluster(source, target, running, others)


@contextmanager
def led_cluster(
    folder: Path,
    brokers: int = 1,
    bookies: int = 2,
    *,
    ensemble: int | None = None,
    session_timeout_s: float | None = None,
    bookie_settings: Mapping[str, str] | None = None,
) -> Iterator[ReplaceableCluster]:
    """Run the same with bookies that register in the store that is to be replaced.

    Each entry is on `ensemble` bookies, or on all; others can take the place of one that is lost.
    `session_timeout_s` is of sessions of brokers; `bookie_settings` are added to the configuration
    of each bookie.

    Raises:
        ServerFailed: if a server does not become ready.
    """
    copies = bookies if ensemble is None else ensemble
    with ExitStack() as held:
        source = held.enter_context(zookeeper(memory=_MEMORY, folder=folder / "source"))
        target = held.enter_context(oxia(folder=folder / "target"))
        init_cluster(source.url)
        led = held.enter_context(
            bookkeeper(source.url, bookies, folder=folder / "bookies", settings=bookie_settings)
        )
        running = held.enter_context(
            our_brokers(
                source.url,
                brokers,
                ledgers_url=f"bookkeeper:{_copies(copies)}",
                options=_options(session_timeout_s, target),
                folder=folder / "brokers",
            )
        )
        yield ReplaceableCluster(source, target, running, led)


def _copies(count: int) -> str:
    return f"?ensemble={count}&write={count}&ack={count}"


def _options(session_timeout_s: float | None, target: Oxia) -> tuple[str, ...]:
    targets = ("--metadata-migration-targets", target.url)
    if session_timeout_s is None:
        return targets
    return ("--metadata-session-timeout-s", f"{session_timeout_s:g}", *targets)
