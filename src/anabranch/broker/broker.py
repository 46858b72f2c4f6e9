"""The broker: sessions in front, topics behind, and of the outside world only what it is given."""

from anabranch import __version__
from anabranch.broker.access import Guard
from anabranch.broker.doorkeeper import Doorkeeper
from anabranch.broker.extensions import Extensions
from anabranch.broker.generated_names import next_instance
from anabranch.broker.mishaps import Mishaps
from anabranch.broker.namespaces import Namespaces
from anabranch.broker.policies import PolicySource
from anabranch.broker.publish_latency import PublishLatency
from anabranch.broker.schemas import Schemas
from anabranch.broker.session import Session
from anabranch.broker.settings import BrokerSettings
from anabranch.broker.statistics import BrokerStatistics
from anabranch.broker.topic_lists import TopicLists
from anabranch.broker.topic_upkeep import TopicUpkeep
from anabranch.broker.topic_watchers import TopicWatchers
from anabranch.broker.topics import Topics
from anabranch.broker.traffic import Rates
from anabranch.broker.unloading import unload_all
from anabranch.errors import Fenced
from anabranch.generated.pulsar_api_pb2 import ServerError
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.store import MetadataStore
from anabranch.ownership import BrokerAddress, Bundle, Ownership, SoleOwner
from anabranch.runtime import Runtime
from anabranch.runtime.network import ConnectionHandler
from anabranch.runtime.tasks import Tasks


class Broker:
    """Serves Pulsar's binary protocol for the topics it owns."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        metadata: MetadataStore,
        managed_ledgers: ManagedLedgers,
        settings: BrokerSettings,
        tasks: Tasks,
        extensions: Extensions | None = None,
        guard: Guard | None = None,
        ownership: Ownership | None = None,
        mishaps: Mishaps | None = None,
    ) -> None:
        """Without an `ownership` this is the only broker there is.

        Without `mishaps` of its own it ends with the first one, like any other failed task.
        """
        self.mishaps = mishaps or Mishaps(tasks.report)
        self.settings = settings
        self.tasks = tasks
        self.guard = guard
        self.clock = runtime.clock
        self.extensions = extensions or Extensions()
        self.server_version = f"Anabranch-{__version__}"
        self.sessions: set[Session] = set()
        self._doorkeeper = Doorkeeper(
            connections_max=settings.connections_max,
            connections_per_host_max=settings.connections_per_host_max,
        )
        self.policies = PolicySource(
            metadata, runtime, cluster=settings.cluster, defaults=settings.policies
        )
        self.namespaces = Namespaces(
            metadata, self.policies, cluster=settings.cluster, service_url=settings.service_url
        )
        self.ownership: Ownership = ownership or SoleOwner(
            BrokerAddress(settings.cluster, settings.service_url, settings.service_url_tls)
        )
        self.ownership.on_lost = self._lost
        self.topics = Topics(
            managed_ledgers,
            self.namespaces,
            ownership=self.ownership,
            extensions=self.extensions,
            tasks=tasks,
            mishaps=self.mishaps,
        )
        self.topic_lists = TopicLists(metadata, managed_ledgers, self.topics, self.policies)
        watching = self.mishaps.contained(tasks, lambda _: None)
        self.topic_watchers = TopicWatchers(metadata, self.topic_lists, watching)
        self.upkeep = TopicUpkeep(
            self.topics,
            runtime.clock,
            self.mishaps,
            interval_s=settings.policy_check_interval_s,
        )
        self.publish_latency = PublishLatency(runtime.clock)
        self.rates = Rates(runtime.clock, self.publish_latency)
        self.pressure = managed_ledgers.pressure
        self.schemas = Schemas(managed_ledgers.schemas, runtime.clock)
        self.messages_in = 0
        self._messages_out_before = 0
        """Of connections that are gone."""
        self._sessions_ended = 0
        self._metadata = metadata
        self._entropy = runtime.entropy
        self._instance = 0
        self._names_given = 0

    async def start(self) -> None:
        """Prepare the cluster's metadata; connections may be accepted afterwards."""
        self.policies.start(self.tasks, self.topics.policies_changed)
        if self.settings.creates_defaults:
            await self.namespaces.initialise()
        self._instance = await next_instance(self._metadata, self.settings.numbering)
        await self.ownership.start()
        self.tasks.spawn("look after topics", self.upkeep.run())
        self.tasks.spawn("measure rates", self.rates.run(self.topics.all))

    def _lost(self, bundle: Bundle) -> None:
        if self.tasks.closed:
            return
        # Those that are open now: one that is opened later is so because the bundle came back.
        error = Fenced(f"{bundle} is not owned by this broker any more")
        ending = self.topics.fail_all(self.topics.all(), bundle, error)
        self.tasks.spawn(f"end topics of {bundle}", ending)

    def new_connection(self) -> ConnectionHandler:
        """Return the handler of one new connection."""
        return Session(self)

    def welcome(self, session: Session) -> None:
        """A connection was made; it is told so, and closed, if there are too many."""
        why_not = self._doorkeeper.admit(session.host)
        if why_not is None:
            self.sessions.add(session)
        else:
            session.refuse_connection(why_not, ServerError.NotAllowedError)

    def forget(self, session: Session) -> None:
        """A connection is gone."""
        if session in self.sessions:
            self.sessions.discard(session)
            self._doorkeeper.leave(session.host)
            self._messages_out_before += session.messages_out
            self._sessions_ended += 1

    def statistics(self) -> BrokerStatistics:
        """Return what this broker counts, as of now."""
        return BrokerStatistics(
            connections=len(self.sessions),
            topics=len(self.topics),
            producers=sum(len(session.producers) for session in self.sessions),
            consumers=sum(len(session.consumers) for session in self.sessions),
            messages_in=self.messages_in,
            messages_out=self._messages_out_before
            + sum(session.messages_out for session in self.sessions),
            mishaps=self.mishaps.count,
        )

    @property
    def ended(self) -> int:
        """How many topics and connections were closed so far."""
        return self.topics.ended + self._sessions_ended

    def new_producer_name(self) -> str:
        """A name no producer of this cluster has had."""
        self._names_given += 1
        return f"{self.settings.cluster}-{self._instance}-{self._names_given - 1}"

    def new_consumer_name(self) -> str:
        """A short random name, as Pulsar's broker gives."""
        return self._entropy.token_hex(5)

    async def close(self) -> None:
        """Hand the topics over to others, or close them durably; then end every connection."""
        await self.ownership.leave()
        await unload_all(self)
        await self.topics.close()
        await self.ownership.close()
        for session in sorted(self.sessions, key=lambda each: each.peer):
            session.close()
