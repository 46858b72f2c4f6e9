"""Planted bugs of `anabranch.ownership`, and of how a broker obeys it."""

from bisect import bisect_left

from anabranch.broker.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.ids import TopicName
from anabranch.ownership import bundles
from anabranch.ownership.addresses import BrokerAddress
from anabranch.ownership.bundles import Bundle, NamespaceBundles
from anabranch.ownership.cluster_ownership import ClusterOwnership
from anabranch.testing.planted import original, planted

_OWNERSHIP = "anabranch.ownership.cluster_ownership:ClusterOwnership."


@planted("bundle_takes_its_upper_end", target="anabranch.ownership.bundles:NamespaceBundles.of")
def bundle_takes_its_upper_end(self: NamespaceBundles, topic: TopicName) -> Bundle:
    """A topic right at a boundary is looked for in the bundle below it."""
    return self.all[max(bisect_left(self._lows, bundles.hash_of(topic)) - 1, 0)]


@planted("lookup_believes_an_old_answer", target=_OWNERSHIP + "_other_owner")
async def lookup_believes_an_old_answer(
    self: ClusterOwnership, bundle: Bundle
) -> BrokerAddress | None:
    """Who once owned a bundle is taken for its owner for good."""
    old: dict[Bundle, BrokerAddress] = self.__dict__.setdefault("old_answers", {})
    if bundle not in old:
        found = await original("lookup_believes_an_old_answer")(self, bundle)
        if found is None:
            return None
        old[bundle] = found
    return old[bundle]


@planted("lookup_sends_nobody_on", target=_OWNERSHIP + "_candidate")
async def lookup_sends_nobody_on(
    self: ClusterOwnership, layout: NamespaceBundles, bundle: Bundle, *, authoritative: bool
) -> BrokerAddress:
    """Whoever is asked first takes the bundle."""
    del layout, bundle, authoritative
    return self.me


@planted("who_is_cut_off_asks_its_store", target=_OWNERSHIP + "_refuse_without_session")
def who_is_cut_off_asks_its_store(self: ClusterOwnership) -> None:
    """A broker whose session is over lets clients wait until its metadata store is back."""


@planted("lost_bundle_is_kept", target="anabranch.broker.broker:Broker._lost")
def lost_bundle_is_kept(self: Broker, bundle: Bundle) -> None:
    """A broker goes on with the topics of a bundle whose lock it has lost."""


@planted("topics_open_without_asking", target=_OWNERSHIP + "require")
async def topics_open_without_asking(self: ClusterOwnership, topic: TopicName) -> None:
    """A topic is opened wherever a client asks for it."""


@planted("clients_leave_before_the_lock", target="anabranch.broker.topic:Topic.stop")
async def clients_leave_before_the_lock(self: Topic) -> None:
    """Clients of an unloaded topic are told before anybody else can serve them, and not where."""
    self.disconnect_clients()
    await original("clients_leave_before_the_lock")(self)


@planted("who_stops_gives_nothing_up", target="anabranch.broker.unloading:unload_all")
async def who_stops_gives_nothing_up(broker: Broker) -> None:
    """A broker that is told to stop leaves its bundles to the end of its session."""
