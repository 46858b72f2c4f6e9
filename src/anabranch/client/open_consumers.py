"""Opening a consumer: of one topic, of several, of a partitioned one, or of a pattern's."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.client.consumer import TopicConsumer
from anabranch.client.letters import DeadLetters, Letters
from anabranch.client.many_topics import ManyTopics
from anabranch.client.questions import whole_of
from anabranch.client.roles import Consumer
from anabranch.client.settings import ORDERED_TYPES, ConsumerSettings
from anabranch.client.topic_sets import MatchingTopics, NamedTopics, TopicSet, follow
from anabranch.errors import ConfigError, InputError
from anabranch.ids import TopicName, check_subscription_name

if TYPE_CHECKING:
    from anabranch.client.client import Client


async def open_consumer(
    client: "Client",
    topic: str | Sequence[str] | re.Pattern[str],
    subscription: str,
    settings: ConsumerSettings,
    dead_letters: DeadLetters | None,
    refresh_s: float,
) -> Consumer:
    """See `Client.consumer`."""
    check_subscription_name(subscription)
    if refresh_s <= 0:
        raise ConfigError(f"refresh_s must be positive: {refresh_s}")
    names = _names(topic)
    letters = None
    if dead_letters is not None:
        if settings.subscription_type in ORDERED_TYPES:
            raise ConfigError("dead letters are for shared and key_shared subscriptions")
        if len(names) != 1:
            raise ConfigError("dead letters are for a consumer of one topic")
        letters = Letters(client, whole_of(names[0]), subscription, dead_letters)
        names.append(TopicName.parse(letters.retry_topic))
    topics: TopicSet = (
        MatchingTopics(topic) if isinstance(topic, re.Pattern) else NamedTopics(names)
    )

    def make(name: TopicName) -> TopicConsumer:
        consumer = TopicConsumer(client, name, subscription, settings)
        if letters is not None:
            consumer.give_up_with(letters)
        return consumer

    found = await topics.resolve(client)
    if len(names) == 1 and found == names:
        consumer = make(names[0])
        await client.start(consumer)
        return consumer
    many = ManyTopics(client, subscription, settings.name, make)
    many.letters = letters
    await many.add(found)
    client.tasks.spawn(f"topics of {subscription}", follow(client, topics, many, refresh_s))
    return many


def _names(topic: str | Sequence[str] | re.Pattern[str]) -> list[TopicName]:
    if isinstance(topic, re.Pattern):
        return []
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names:
        raise InputError("a consumer needs at least one topic")
    return [TopicName.parse(name) for name in names]
