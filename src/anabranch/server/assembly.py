"""The composition root: the only place where stores, broker, port and web interface are wired.

The same assembly runs in a real process and in the simulation; only the runtime differs. Hence no
signals, no web server and no operating system here: see `process`.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from anabranch import limits
from anabranch.admin import TopicAddress, WebInterface
from anabranch.broker import Broker, BrokerSettings, Mishaps
from anabranch.errors import AnabranchError, ConfigError, NotFound
from anabranch.ids import TopicName
from anabranch.ledgers.addresses import BOOKKEEPER
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.counters import numbering_of
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.operation import Operation
from anabranch.ownership import BrokerAddress, Ownership, SoleOwner
from anabranch.runtime import Runtime
from anabranch.runtime.network import Network, ServerTls, Tls
from anabranch.runtime.tasks import Tasks
from anabranch.security import Authentication, Authorization
from anabranch.server.broker_metrics import broker_metrics
from anabranch.server.metadata_migration import (
    MigrationFigures,
    Migrations,
    migrations_of,
    taking_part,
)
from anabranch.server.metadata_stores import TakesPart
from anabranch.server.policy_defaults import policy_defaults
from anabranch.server.ports import Door, explain
from anabranch.server.security import load_security, peer_tls, server_tls, shown
from anabranch.server.settings import SETTINGS, Settings
from anabranch.server.sole_server import SoleServer, may_be_shared
from anabranch.server.stores import Stores, open_stores
from anabranch.server.topic_settings import managed_ledger_config
from anabranch.telemetry import get_logger
from anabranch.telemetry.metrics import Metric, MetricSource, gauge

_HEALTH_PATH: Final = "/anabranch/health"
_log = get_logger("server")


class Standalone:
    """One process with everything in it."""

    _creates_defaults = True

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        *,
        web_port: int | None = None,
        web_tls_port: int | None = None,
        metric_sources: Sequence[MetricSource] = (),
        survives_mishaps: bool = False,
    ) -> None:
        """The web ports are those in use, where the settings leave the choice to the system.

        A process that others depend on survives a bug that a client's request meets; tests and
        simulations end with it.
        """
        self._runtime = runtime
        self._settings = settings
        self._metric_sources = metric_sources
        self._survives_mishaps = survives_mishaps
        self._tasks = Tasks(self.report_failure)
        self._door = Door()
        self._held = AsyncExitStack()
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._not_ready: str | None = "the server is starting"
        host = _in_url(settings.reachable_host)
        self.web_url = self.service_url = ""
        if settings.plain_ports:
            self.web_url = f"http://{host}:{web_port or settings.web_port}"
            self.service_url = f"pulsar://{host}:{settings.port}"
        self.tls = server_tls(settings)
        self.service_url_tls = ""
        self.web_url_tls = ""
        if self.tls is not None:
            self.web_url_tls = f"https://{host}:{web_tls_port or settings.web_tls_port}"
        self._web_port = web_port or settings.web_port
        if not settings.plain_ports:
            self._web_port = web_tls_port or settings.web_tls_port
        self.web_app = WebInterface(self)
        self._security = load_security(settings, runtime.clock, _warn)
        self.authorization: Authorization | None = None
        self._migrations = Migrations(None)
        self._stores: Stores
        self._broker: Broker

    @property
    def cluster(self) -> str:
        """See `Served`."""
        return self._settings.cluster

    @property
    def broker(self) -> Broker:
        """See `Served`."""
        return self._broker

    @property
    def metadata(self) -> MetadataStore:
        """See `Served`."""
        return self._stores.metadata

    @property
    def metadata_migration(self) -> Operation | None:
        """See `Served`."""
        return self._migrations.metadata

    @property
    def configuration_migration(self) -> Operation | None:
        """See `Served`."""
        return self._migrations.configuration

    @property
    def authentication(self) -> Authentication | None:
        """See `Served`."""
        return self._security.authentication

    @property
    def reachable_url(self) -> str:
        """Where clients connect to: the plain port, or the one with TLS where that is all."""
        return self.service_url or self.service_url_tls

    @property
    def reachable_web_url(self) -> str:
        """The same of the web interface."""
        return self.web_url or self.web_url_tls

    @property
    def network(self) -> Network:
        """See `Served`."""
        return self._runtime.network

    @property
    def peer_tls(self) -> Tls | None:
        """See `Served`."""
        return peer_tls(self._settings)

    @property
    def data_place(self) -> str:
        """Where the data is, in words."""
        if self._settings.ledgers_url == "memory:":
            return "memory, and forgotten at the stop"
        if self._settings.ledgers_url.startswith(BOOKKEEPER):
            return f"{self._settings.metadata_url} and on the bookies registered there"
        return self._settings.data

    async def start(self) -> None:
        """Open port and stores and serve; on an error everything is let go again.

        Raises:
            AnabranchError: saying what is in the way.
        """
        try:
            await self._listen()
            me = taking_part(self._address(), self._settings)
            self._stores = await open_stores(
                self._runtime, self._settings, self._held, TakesPart(me, self._tasks)
            )
            self._held.push_async_callback(self._tasks.close)
            self._show_migration()
            await self._start_broker()
        except BaseException:
            await self._tasks.close()  # those who take part use the stores that are let go now
            await self._held.aclose()
            raise
        self._tasks.spawn("watch stores", self._watch_stores())
        if self.tls is not None:
            self._tasks.spawn("renew certificates", self._renew_certificates())
        self._door.open(self._broker.new_connection)
        self._not_ready = None
        _log.info("started", service_url=self.reachable_url, web_url=self.reachable_web_url)

    def _show_migration(self) -> None:
        self._migrations = migrations_of(self._stores, self._runtime, self._settings)
        figures = MigrationFigures()
        for each in self._migrations.all():
            self._tasks.spawn("figures of a migration", figures.keep_up(each))
        self._metric_sources = (*self._metric_sources, figures.metrics)

    async def _listen(self) -> None:
        settings = self._settings
        host = _in_url(settings.reachable_host)
        if settings.plain_ports:
            port = await self._listen_on(settings.port, "--port", None)
            self.service_url = f"pulsar://{host}:{port}"
        if self.tls is not None:
            port = await self._listen_on(settings.tls_port, "--tls-port", self.tls)
            self.service_url_tls = f"pulsar+ssl://{host}:{port}"

    async def _listen_on(self, port: int, flag: str, tls: ServerTls | None) -> int:
        host, network = self._settings.host, self._runtime.network
        try:
            listener = await network.listen(host, port, self._door.new_connection, tls=tls)
        except OSError as error:
            raise explain(error, host=host, port=port, flag=flag) from error
        self._held.push_async_callback(listener.close)
        return listener.port

    async def _renew_certificates(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tls_reload_s)
            try:
                if self._runtime.network.renew_tls():
                    _log.info("certificates_renewed")
            except ConfigError as error:
                _log.warning("certificates_not_renewed", reason=str(error))

    async def _start_broker(self) -> None:
        managed_ledgers = ManagedLedgers(
            metadata=self._stores.metadata,
            ledgers=self._stores.ledgers,
            runtime=self._runtime,
            config=managed_ledger_config(self._settings),
        )
        self._held.push_async_callback(managed_ledgers.close)
        ownership = await self._ownership()
        self.authorization = self._security.authorization(self._stores.metadata)
        self._broker = Broker(
            runtime=self._runtime,
            metadata=self._stores.metadata,
            managed_ledgers=managed_ledgers,
            settings=BrokerSettings(
                cluster=self._settings.cluster,
                service_url=self.service_url,
                service_url_tls=self.service_url_tls,
                message_bytes_max=self._settings.max_message_bytes,
                keep_alive_interval_s=self._settings.keep_alive_interval_s,
                connections_max=self._settings.connections_max,
                connections_per_host_max=self._settings.connections_per_host_max,
                policies=policy_defaults(self._settings),
                policy_check_interval_s=self._settings.policy_check_s,
                numbering=numbering_of(self._stores.local.url()),
                creates_defaults=self._creates_defaults,
            ),
            tasks=self._tasks,
            guard=self._security.guard(self.authorization),
            ownership=ownership,
            mishaps=Mishaps(None if self._survives_mishaps else self._tasks.report),
        )
        await self._broker.start()
        self._held.push_async_callback(self._broker.close)

    def _address(self) -> BrokerAddress:
        """How others know this broker."""
        broker_id = f"{_in_url(self._settings.reachable_host)}:{self._web_port}"
        return BrokerAddress(
            broker_id, self.service_url, self.service_url_tls, self.web_url, self.web_url_tls
        )

    async def _ownership(self) -> Ownership:
        """Who serves which topics; called when the stores are open.

        Raises:
            ConflictError: if somebody else serves them.
        """
        if may_be_shared(self._settings.metadata_url):
            alone = SoleServer(
                self._stores.metadata, self._runtime, self._tasks, self.reachable_url
            )
            self._held.push_async_callback(alone.close)
            await alone.claim()
        return SoleOwner(self._address())

    async def serve_until(self, stop: asyncio.Event) -> BaseException | None:
        """Wait until `stop` is set, or until serving is over by itself; return why in that case."""
        waiting = [
            self._tasks.spawn("wait for the stop", stop.wait()),
            self._tasks.spawn("wait for a failure", self._ended.wait()),
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiting:
            waiter.cancel()
        return self._failure

    async def close(self) -> None:
        """Stop serving: acknowledgements made durable, topics closed, stores closed."""
        self._not_ready = "the server is stopping"
        self._door.shut()
        await self._held.aclose()

    def report_failure(self, name: str, error: BaseException) -> None:
        """A background task has failed: this server can not go on."""
        if self._failure is None:
            _log.error("task_failed", task=name, reason=str(error))
            self._failure = error
            self._not_ready = f"{name} failed: {error}"
            self._door.shut()
            self._ended.set()

    async def _watch_stores(self) -> None:
        while True:
            await asyncio.sleep(limits.STORE_WATCH_INTERVAL_S)
            failure = self._stores.failure()
            if failure is not None:
                raise failure

    def why_not_ready(self) -> str | None:
        """See `Served`."""
        return self._not_ready

    async def why_unhealthy(self) -> str | None:
        """See `Served`."""
        failure = self._stores.failure()
        if failure is not None:
            return str(failure)
        document = {"version": 1, "checked_ms": self._runtime.clock.wall_ms()}
        try:
            async with asyncio.timeout(limits.HEALTH_CHECK_S_MAX):
                await self._stores.metadata.put(_HEALTH_PATH, json.dumps(document).encode())
        except TimeoutError:
            return f"the metadata store took no write within {limits.HEALTH_CHECK_S_MAX:g} s"
        except AnabranchError as error:
            return f"the metadata store refused a write: {error}"
        return None

    def degraded(self) -> str | None:
        """See `Served`."""
        return self._stores.ledgers.degraded

    async def locate(self, topic: TopicName, *, authoritative: bool) -> TopicAddress:
        """See `Served`."""
        if not await self._stores.metadata.exists(f"/admin/policies/{topic.namespace_name}"):
            raise NotFound(f"namespace {topic.namespace_name} does not exist")
        found = await self._broker.ownership.locate(topic, authoritative=authoritative)
        broker = found.broker
        return TopicAddress(
            broker.service_url,
            broker.service_url_tls,
            broker.web_url,
            broker.web_url_tls,
            is_owner=found.is_owner,
        )

    async def partitions_of(self, topic: TopicName) -> int:
        """See `Served`."""
        return await self._broker.namespaces.partitions_of(topic)

    def configuration(self) -> dict[str, str]:
        """See `Served`."""
        return {name: shown(name, getattr(self._settings, name)) for name in SETTINGS}

    def metrics(self) -> Iterable[Metric]:
        """See `Served`."""
        if self._not_ready is None:
            yield from broker_metrics(
                self._broker,
                cluster=self._settings.cluster,
                each_topic=self._settings.topic_metrics,
            )
            yield gauge(
                "anabranch_ledger_store_degraded",
                "1 while the ledger store cannot tidy up; the answer about health has the reason.",
                self.degraded() is not None,
            )
        for source in self._metric_sources:
            yield from source()


def _warn(sentence: str) -> None:
    _log.warning("secrets_open_to_others", problem=sentence)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
