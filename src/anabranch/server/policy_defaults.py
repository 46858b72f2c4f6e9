"""How the server's settings read as the policies that count where nothing else is said."""

from anabranch.policies import AutoTopicCreation
from anabranch.policies.effective import PolicyDefaults
from anabranch.server.settings import Settings


def policy_defaults(settings: Settings) -> PolicyDefaults:
    """The broker's level of all policies."""
    return PolicyDefaults(
        auto_topic_creation=AutoTopicCreation(
            allow=settings.auto_create_topics, topic_type="non-partitioned"
        )
    )
