"""The coordinator of a workload: client processes around a topic, and the drain at the end.

It makes every subscription before the first send, never carries history through the system under
test, and closes all histories whatever happens, so that even a run cut short can be judged.
"""

import asyncio
import itertools
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from anabranch.errors import ConfigError, InputError
from anabranch.ids import TopicName
from anabranch.runtime.tasks import Tasks
from anabranch.verify.facts import Facts
from anabranch.verify.history import SUFFIX, Header, HistoryTail, HistoryWriter
from anabranch.verify.limits import ACK_LAG_S_MAX
from anabranch.verify.records import (
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    AckKind,
    Delivery,
    Drained,
    Event,
    SubscriptionType,
)
from anabranch.verify.workload_process import ClientProcess

_POLL_S: Final = 0.2
_STOP_GRACE_S: Final = 10.0
_PROFILES: Final[Sequence[dict[str, Any]]] = (
    {"batching": True, "compression": "NONE", "sync": False},
    {"batching": False, "compression": "NONE", "sync": False},
    {"batching": True, "compression": "LZ4", "sync": False},
    {"batching": False, "compression": "ZSTD", "sync": True},
)
_SINGLE: Final = (SubscriptionType.EXCLUSIVE,)


class ClientKind(StrEnum):
    """Which library the clients use."""

    PYPI = "pypi"
    """The stock `pulsar-client`."""
    SDK = "sdk"
    """`anabranch.client`: learns whether acknowledgements arrived and where cursors are."""


_MODULES: Final = {
    ClientKind.PYPI: "anabranch.verify.workload_client",
    ClientKind.SDK: "anabranch.verify.workload_sdk",
}


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """What a workload does."""

    url: str
    topic: str
    run: str
    seed: int
    producers: int = 4
    subscriptions: tuple[SubscriptionType, ...] = (
        SubscriptionType.EXCLUSIVE,
        SubscriptionType.SHARED,
    )
    rate: float = 500.0
    """Messages per second of all producers together."""
    keys: int = 50
    dedup: bool = False
    client: ClientKind = ClientKind.PYPI
    ack_lag_s: float = 0.0
    """How old a confirmed acknowledgement may be that a crash of the owner undoes."""
    connect_s: float = 30.0
    send_timeout_s: float = 30.0
    idle_s: float = 10.0
    """What has not arrived after so long a silence is lost."""
    drain_s: float = 300.0

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ConfigError: naming the setting.
            InvalidName: if the topic cannot have that name.
        """
        if not self.url.startswith(("pulsar://", "pulsar+ssl://")):
            raise ConfigError(f"url {self.url!r} must begin with pulsar:// or pulsar+ssl://")
        if not TopicName.parse(self.topic).is_persistent:
            raise ConfigError(f"topic {self.topic!r} stores nothing: choose a persistent one")
        if not self.subscriptions:
            raise ConfigError("at least one subscription is needed to see what was stored")
        for name in ("producers", "rate", "keys", "connect_s", "send_timeout_s", "idle_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.ack_lag_s <= ACK_LAG_S_MAX:
            raise ConfigError(f"ack_lag_s must be from 0 to {ACK_LAG_S_MAX:g}: {self.ack_lag_s}")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a workload is."""

    acknowledged_of: tuple[int, ...]
    """Of each producer."""
    failed: int
    unknown: int
    delivered: int
    missing: int | None = None
    """While draining: acknowledged messages that have not arrived, over all subscriptions."""

    @property
    def acknowledged(self) -> int:
        """Of all producers together."""
        return sum(self.acknowledged_of)


def refuse_used(folder: Path) -> None:
    """Refuse a folder for histories that holds something.

    Raises:
        InputError: if it does.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: a run needs a folder of its own")


class Workload:
    """One run against a server. `start`, let it run, `stop_sending`, `drain`, always `close`."""

    def __init__(self, settings: WorkloadSettings, folder: Path) -> None:
        settings.check()
        self.settings = settings
        self.folder = folder
        self.failure: BaseException | None = None
        """The first client process that failed, if one did."""
        self._producers: list[ClientProcess] = []
        self._consumers: list[ClientProcess] = []
        self._tasks = Tasks(self._on_failure)
        self._history: HistoryWriter | None = None
        self._missing: int | None = None

    def _on_failure(self, _: str, failure: BaseException) -> None:
        self.failure = self.failure or failure

    async def start(self) -> None:
        """Make the subscriptions, connect the producers and let them send.

        Raises:
            InputError: if the folder is not empty.
            ClientFailed: if a client cannot connect.
        """
        refuse_used(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir()
        consumers, producers = self._consumer_tasks(), self._producer_tasks()
        names = tuple(task["name"] for task in (*consumers, *producers))
        header = Header(**self._header(), client="coordinator", clients=names)
        path = self.folder / f"coordinator{SUFFIX}"
        self._history = HistoryWriter(path, header, time.monotonic)
        self.note(Event("run-started", f"{len(names)} clients"))
        await self._start_clients(self._consumers, consumers)
        await self._start_clients(self._producers, producers)
        for client in (*self._consumers, *self._producers):
            client.tell("go")

    def _header(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "run": settings.run,
            "host": platform.node(),
            "topic": settings.topic,
            "dedup": settings.dedup,
            "ack_lag_s": settings.ack_lag_s,
            "settings": asdict(settings),
        }

    def _producer_tasks(self) -> list[dict[str, Any]]:
        count = self.settings.producers
        # A batch goes to one consumer as a whole, so only unmixed keys keep their order there.
        may_batch = SubscriptionType.KEY_SHARED not in self.settings.subscriptions
        return [
            self._task(f"producer-{number}", "producer")
            | {
                "producer": number,
                "epoch": 0,
                "seed": self.settings.seed,
                "rate": self.settings.rate / count,
                "keys": self.settings.keys,
                "send_timeout_s": self.settings.send_timeout_s,
                "profile": profile | {"batching": profile["batching"] and may_batch},
                "too_large": profile["compression"] == "NONE",
            }
            for number, profile in zip(range(count), itertools.cycle(_PROFILES), strict=False)
        ]

    def _consumer_tasks(self) -> list[dict[str, Any]]:
        tasks = []
        for number, kind in enumerate(self.settings.subscriptions):
            sub = f"verify-{self.settings.run}-{number}-{kind}"
            is_cumulative = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
            ack = AckKind.CUMULATIVE if is_cumulative and number % 2 == 0 else AckKind.INDIVIDUAL
            tasks += [
                self._task(f"consumer-{number}-{kind}-{index}", "consumer")
                | {"sub": sub, "type": kind, "ack": ack}
                for index in range(1 if kind in _SINGLE else 2)
            ]
        return tasks

    def _task(self, name: str, role: str) -> dict[str, Any]:
        return {
            "name": name,
            "role": role,
            "url": self.settings.url,
            "topic": self.settings.topic,
            "run": self.settings.run,
            "connect_s": self.settings.connect_s,
            "header": self._header(),
            "history": str(self.folder / f"{name}{SUFFIX}"),
            "log": str(self.folder / "logs" / f"{name}.log"),
        }

    async def _start_clients(
        self, clients: list[ClientProcess], tasks: list[dict[str, Any]]
    ) -> None:
        for task in tasks:
            errors = self.folder / "logs" / f"{task['name']}.err"
            client = await ClientProcess.start(
                task["name"], task, errors, module=_MODULES[self.settings.client]
            )
            clients.append(client)
            self._tasks.spawn(client.name, client.listen())
        for client in clients:
            await client.wait_ready()
        await asyncio.sleep(0)  # lets the task of a client that ended report its failure
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what the first failed client failed with, if one did."""
        if self.failure is not None:
            raise self.failure

    def note(self, event: Event) -> None:
        """Put a fault or a phase on record, at once."""
        assert self._history is not None, "the run was started"
        self._history.append(event)
        self._history.flush()

    @property
    def progress(self) -> Progress:
        """What the clients reported last."""

        def total(clients: list[ClientProcess], name: str) -> int:
            return sum(client.progress.get(name, 0) for client in clients)

        return Progress(
            tuple(client.progress.get("ok", 0) for client in self._producers),
            total(self._producers, "fail"),
            total(self._producers, "unknown"),
            total(self._consumers, "delivered"),
            self._missing,
        )

    async def stop_sending(self) -> None:
        """Let the producers wait for their open sends, and end."""
        self.note(Event("sending-stopped"))
        for client in self._producers:
            client.stop()
        grace_s = self.settings.send_timeout_s + _STOP_GRACE_S
        for client in self._producers:
            if not await client.wait_ended(grace_s):
                self.note(Event("client-killed", f"{client.name} did not end in {grace_s:g} s"))

    async def drain(self, cut: asyncio.Event | None = None) -> bool:
        """Wait until every acknowledged message has arrived, or nothing has for `idle_s`.

        Returns whether the subscriptions count as drained; they do not if their consumers were
        cut off or messages still came when `drain_s` was over, or if `cut` was set before.
        """
        drain = _Drain(self.folder)
        deadline = time.monotonic() + self.settings.drain_s
        while time.monotonic() < deadline and not (cut is not None and cut.is_set()):
            self._missing = drain.poll()
            if not self._missing:
                how = "all seen"
            elif drain.idle_s() >= self.settings.idle_s:
                how = f"nothing new in {self.settings.idle_s:g} s"
            else:
                await asyncio.sleep(_POLL_S)
                continue
            assert self._history is not None, "the run was started"
            for sub in drain.facts.subscriptions:
                self._history.append(Drained(sub, how))
            self._history.flush()
            return True
        self.note(Event("drain-cut-short", f"{self._missing} missing"))
        return False

    async def close(self) -> None:
        """End every client and close the histories. May be called at any time, and again."""
        clients = (*self._producers, *self._consumers)
        for client in clients:
            client.stop()
        for client in clients:
            await client.wait_ended(_STOP_GRACE_S)
        await asyncio.sleep(0)
        await self._tasks.close()
        if self._history is not None:
            self._history.close()


class _Drain:
    """Follows the growing histories and knows what is still missing."""

    def __init__(self, folder: Path) -> None:
        self.facts = Facts(dedup=False)
        self._tails = [HistoryTail(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
        self._last_news = time.monotonic()
        self._cut_off: dict[str, bool] = {}
        self._missing = 0

    def poll(self) -> int:
        """Read what is new and return how many acknowledged messages have not arrived."""
        before = self.facts.counts.records
        for tail in self._tails:
            for _, record in tail.poll():
                self.facts.take(record)
                if isinstance(record, Delivery):
                    self._last_news = time.monotonic()
                elif isinstance(record, Event):
                    self._note_connection(record)
        if self.facts.counts.records != before:
            self._missing = self._count_missing()
        return self._missing

    def _count_missing(self) -> int:
        return sum((owed & ~got).bit_count() for *_, owed, got in self.facts.owed())

    def _note_connection(self, event: Event) -> None:
        if event.name in (CONSUMER_CONNECTION_LOST, CONNECTION_RESTORED):
            self._last_news = time.monotonic()
            self._cut_off[event.about] = event.name == CONSUMER_CONNECTION_LOST

    def idle_s(self) -> float:
        """For how long nothing came, although every consumer was connected."""
        return 0.0 if any(self._cut_off.values()) else time.monotonic() - self._last_news
