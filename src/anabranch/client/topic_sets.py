"""Which topics a consumer of many receives from: those named, with partitions, or a pattern's."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.client.many_topics import ManyTopics
from anabranch.client.questions import partition_of, partitions_of, topics_of
from anabranch.errors import AnabranchError, ConfigError
from anabranch.ids import TopicName, check_namespace_name
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.client.client import Client

_log = get_logger("client")


class NamedTopics:
    """Topics by their names. Those that were there once are never left."""

    leaves = False

    def __init__(self, names: Sequence[TopicName]) -> None:
        self._names = list(dict.fromkeys(names))

    async def resolve(self, client: "Client") -> list[TopicName]:
        """The topics, of partitioned ones the partitions.

        Raises:
            BrokerRefused: if a broker does not want to say it.
            Unreachable: if nobody answered in time.
        """
        found: list[TopicName] = []
        for name in self._names:
            count = await partitions_of(client, name)
            found += [partition_of(name, index) for index in range(count)] or [name]
        return found


class MatchingTopics:
    """The topics of a namespace whose names match. One that is gone is left."""

    leaves = True

    def __init__(self, pattern: re.Pattern[str]) -> None:
        """The pattern is of whole names, of which the part before the last slash is plain.

        Raises:
            ConfigError: if no namespace can be read from it.
        """
        self._pattern = pattern
        domain, self._has_domain, rest = pattern.pattern.rpartition("://")
        self._domain = domain or "persistent"
        namespace = "/".join(rest.split("/")[:2])
        try:
            self._namespace = check_namespace_name(namespace)
        except AnabranchError:
            raise ConfigError(
                f"a pattern has to begin with a namespace, such as public/default/orders-.*: "
                f"{pattern.pattern!r}"
            ) from None

    def matches(self, topic: TopicName) -> bool:
        """Whether a topic is one of them."""
        if topic.domain != self._domain:
            return False
        text = str(topic) if self._has_domain else f"{topic.namespace_name}/{topic.local}"
        return self._pattern.fullmatch(text) is not None

    async def resolve(self, client: "Client") -> list[TopicName]:
        """See `NamedTopics.resolve`."""
        names = [name for name in await topics_of(client, self._namespace) if self.matches(name)]
        return await NamedTopics(names).resolve(client)


TopicSet = NamedTopics | MatchingTopics


async def follow(client: "Client", topics: TopicSet, consumer: ManyTopics, every_s: float) -> None:
    """Keep a consumer at the topics that there are."""
    while not consumer.closed:
        await asyncio.sleep(every_s)
        try:
            wanted = await topics.resolve(client)
            if consumer.closed:
                return
            for problem in await consumer.add_those_that_open(wanted):
                _log.warning("topic_not_added", error=str(problem))
            if topics.leaves:
                kept = {str(name) for name in wanted}
                for gone in [name for name in consumer.topics if name not in kept]:
                    await consumer.remove(TopicName.parse(gone))
        except AnabranchError as error:
            _log.warning("topics_not_seen", error=str(error))
