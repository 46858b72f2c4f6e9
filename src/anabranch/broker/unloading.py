"""Giving bundles up in good order: topics stored and closed, and clients sent to the next owner.

Clients hear of it only when the next owner can have the bundle, so that the first broker they ask
serves them.
"""

from typing import TYPE_CHECKING

from anabranch.broker.limits import TOPICS_PER_SLICE
from anabranch.errors import AnabranchError
from anabranch.ownership import BrokerAddress, Bundle
from anabranch.runtime import slices
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.broker.broker import Broker
    from anabranch.broker.topic import Topic

_log = get_logger("broker")


async def unload(broker: "Broker", bundle: Bundle, to: str = "") -> None:
    """Give a bundle to another broker, the one of that id or the one whose turn it is.

    Raises:
        NotFound: if this broker does not own it, or there is no such other broker.
        ConflictError: if it is being unloaded already.
    """
    next_owner = await broker.ownership.begin_unload(bundle, to)
    try:
        stopped = await broker.topics.stop(bundle)
    finally:
        await broker.ownership.finish_unload(bundle)
    await disconnect_all(stopped, next_owner)
    where = "nobody" if next_owner is None else next_owner.service_url or next_owner.service_url_tls
    _log.info("unloaded", bundle=str(bundle), topics=len(stopped), to=where)


async def disconnect_all(topics: "list[Topic]", next_owner: BrokerAddress | None) -> None:
    """Send the clients of topics that were stopped to the next owner."""
    async for topic in slices.in_slices(topics, TOPICS_PER_SLICE):
        topic.next_owner = next_owner
        topic.disconnect_clients()


async def unload_all(broker: "Broker") -> None:
    """Give up every bundle; one that cannot be given up is left to the end of the session."""
    for bundle in broker.ownership.owned():
        try:
            await unload(broker, bundle)
        except AnabranchError as error:
            _log.warning("not_unloaded", bundle=str(bundle), reason=str(error))


def hint(topic: "Topic") -> dict[str, str]:
    """What a client is told of the next owner when its producer or consumer is closed."""
    if topic.next_owner is None:
        return {}
    urls = {"url": topic.next_owner.service_url, "url_tls": topic.next_owner.service_url_tls}
    return {name: url for name, url in urls.items() if url}
