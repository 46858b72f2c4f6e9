"""The bundles of a namespace: giving one up, and what is done to all topics of one or of all.

What is asked of a namespace is asked of each of its bundles, at the broker that has it.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.namespaces import existing, layout_of
from anabranch.admin.owners import on_every_bundle, open_here, require_bundle_here, require_here
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_names import names_in, parsed
from anabranch.broker import topic_operations
from anabranch.broker.topic import Topic
from anabranch.broker.unloading import unload
from anabranch.errors import InputError, NotFound
from anabranch.ids import TopicName
from anabranch.ownership import Bundle
from anabranch.ownership.addresses import BROKERS
from anabranch.ownership.bundles import hash_of
from anabranch.security import Right

_ALL: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_ONE: Final = f"{_ALL}/{{bundle}}"


async def _bundles(call: Call) -> list[Bundle]:
    bounds = (await layout_of(call)).boundaries
    return [Bundle.parse(call.namespace, f"{low}_{high}") for low, high in pairwise(bounds)]


async def _bundle(call: Call) -> Bundle:
    """The bundle in the path.

    Raises:
        RestRefused: if the namespace has no such bundle.
    """
    await existing(call)
    try:
        wanted = Bundle.parse(call.namespace, call.names["bundle"])
    except InputError as error:
        raise RestRefused(412, f"Invalid bundle range: {error}") from None
    if wanted not in await _bundles(call):
        raise RestRefused(412, f"Invalid bundle range: there is no bundle {wanted}")
    return wanted


# --- giving up -------------------------------------------------------------------------------


async def unload_bundle(call: Call) -> None:
    """Give a bundle to another broker; its clients are sent there."""
    bundle, to = await _bundle(call), call.query.get("destinationBroker", "")
    if not await require_bundle_here(call, bundle):
        return
    if to and to not in await call.served.metadata.children(BROKERS):
        raise RestRefused(409, "Not allowed unload namespace bundle to inactive destination broker")
    try:
        await unload(call.broker, bundle, to)
    except NotFound as error:
        raise RestRefused(409, str(error)) from None


async def unload_all(call: Call) -> None:
    """Give up every bundle of a namespace, wherever it is."""
    await existing(call)
    await on_every_bundle(call, await _bundles(call), unload_bundle)


async def split_bundle(call: Call) -> None:
    """Bundles stay as they were cut."""
    await _bundle(call)
    raise RestRefused(405, "bundles are not split by this broker")


async def hash_positions(call: Call) -> object:
    """Where the topics of a bundle are among all hashes."""
    bundle = await _bundle(call)
    if not await require_bundle_here(call, bundle):
        raise RestRefused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
    wanted = parsed([unquote(name) for name in call.query.getlist("topics")])
    places = {
        str(name): hash_of(name)
        for name in await _names(call)
        if bundle.holds(name) and _is_wanted(name, wanted)
    }
    return {
        "namespace": call.namespace,
        "bundle": call.names["bundle"],
        "topicHashPositions": places,
    }


def _is_wanted(name: TopicName, wanted: Collection[TopicName]) -> bool:
    """Whether a topic was asked for, as itself or by its partitions; all are if none was named."""
    whole = replace(name, local=name.partitioned_local)
    return not wanted or name in wanted or whole in wanted


# --- what waits ------------------------------------------------------------------------------


async def clear_bundle(call: Call) -> None:
    """Pass over everything, in all subscriptions of a bundle's topics."""
    for topic in await _topics(call):
        for name in list(topic.subscriptions):
            await topic_operations.skip_all(topic, name)


async def clear_bundle_of(call: Call) -> None:
    """Pass over everything in one subscription of those of a bundle's topics that have it."""
    for topic in await _topics(call):
        if call.subscription in topic.subscriptions:
            await topic_operations.skip_all(topic, call.subscription)


async def unsubscribe_bundle(call: Call) -> None:
    """Delete one subscription of those of a bundle's topics that have it."""
    for topic in await _topics(call):
        if call.subscription in topic.subscriptions:
            await topic_operations.remove_subscription(topic, call.subscription, force=False)


async def _topics(call: Call) -> list[Topic]:
    bundle = await _bundle(call)
    names = [name for name in await _names(call) if bundle.holds(name)]
    if names and not await require_bundle_here(call, bundle):
        await require_here(call, names[0])
    return [await open_here(call, name) for name in names]


async def _names(call: Call) -> list[TopicName]:
    return parsed(await names_in(call, "PERSISTENT"))


def _everywhere(serve: Any) -> Any:
    async def in_every_bundle(call: Call) -> None:
        await existing(call)
        await on_every_bundle(call, await _bundles(call), serve)

    return in_every_bundle


def _rows() -> list[Endpoint]:
    rows = [
        Endpoint("PUT", f"{_ALL}/unload", Right.ADMINISTER, unload_all, "Give up all bundles"),
        Endpoint("PUT", f"{_ONE}/unload", Right.ADMINISTER, unload_bundle, "Give up a bundle"),
        Endpoint("GET", f"{_ONE}/topicHashPositions", Right.ADMINISTER, hash_positions,
                 "Where the topics of a bundle are"),
        Endpoint("PUT", f"{_ONE}/split", Right.ADMINISTER, split_bundle, "Bundles are not split"),
    ]  # fmt: skip
    for page, serve, words in (
        ("clearBacklog", clear_bundle, "Pass over everything"),
        ("clearBacklog/{subscription}", clear_bundle_of, "Pass over everything in a subscription"),
        ("unsubscribe/{subscription}", unsubscribe_bundle, "Delete a subscription everywhere"),
    ):
        rows.append(Endpoint("POST", f"{_ALL}/{page}", Right.DRAIN, _everywhere(serve), words))
        rows.append(
            Endpoint("POST", f"{_ONE}/{page}", Right.DRAIN, serve, f"{words}, of one bundle")
        )
    return rows


BUNDLE_ENDPOINTS: Final = tuple(_rows())
