"""Whom the policies of a topic let in: numbers of producers, consumers and subscriptions, types.

Pure. The refusals are Pulsar's, in code and words.
"""

from typing import TYPE_CHECKING

from anabranch.broker.policies.quotas import refusal
from anabranch.broker.refusals import Refused
from anabranch.wire import ServerError

if TYPE_CHECKING:
    from anabranch.broker.producer import Producer
    from anabranch.broker.subscription import Subscription
    from anabranch.broker.topic import Topic


def admit_producer(topic: "Topic", producer: "Producer") -> None:
    """Check that one more producer may publish.

    Raises:
        Refused: with ProducerBusy if there are as many as may be, or with the code of a backlog
            quota that is exceeded.
    """
    if topic.policies.encryption_required and not producer.encrypted:
        raise Refused(ServerError.MetadataError, f"Encryption is required in {topic.name}")
    if topic.over_quota is not None:
        raise refusal(str(topic.name), topic.over_quota)
    most = topic.policies.producers_max
    if 0 < most <= len(topic.producers) and producer.name not in topic.producers:
        raise Refused(
            ServerError.ProducerBusy,
            f"Topic '{topic.name}' reached max producers limit: {most}",
        )


def admit_subscription(topic: "Topic") -> None:
    """Check that a subscription which is not there may be created.

    Raises:
        Refused: if subscriptions are created by operators alone, or there are as many as may be.
    """
    if not topic.policies.auto_subscription_creation:
        raise Refused(ServerError.SubscriptionNotFound, "Subscription does not exist")
    most = topic.policies.subscriptions_max
    durable = sum(each.cursor.is_durable for each in topic.subscriptions.values())
    if 0 < most <= durable:
        raise Refused(
            ServerError.NotAllowedError,
            f"Exceed the maximum number of subscriptions of the topic: {topic.name}",
        )


def admit_consumer(topic: "Topic", subscription: "Subscription", type_name: str) -> None:
    """Check that one more consumer may join a subscription, with this type.

    Raises:
        Refused: with ConsumerBusy if there are as many as may be, or NotAllowedError for the type.
    """
    policies = topic.policies
    if policies.subscription_types and type_name not in policies.subscription_types:
        raise Refused(
            ServerError.NotAllowedError,
            f"Topic[{topic.name}] doesn't support {type_name} sub type!",
        )
    attached = sum(len(each.consumers) for each in topic.subscriptions.values())
    if 0 < policies.consumers_max <= attached:
        raise Refused(ServerError.ConsumerBusy, "Topic reached max consumers limit")
    if 0 < policies.consumers_per_subscription_max <= len(subscription.consumers):
        raise Refused(ServerError.ConsumerBusy, "Subscription reached max consumers limit")
