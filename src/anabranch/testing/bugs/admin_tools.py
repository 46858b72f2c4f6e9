"""Planted bugs of what tools ask by REST: counts, places, and what is not served."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, cast

from anabranch.admin.endpoints import Call
from anabranch.broker import topic_operations
from anabranch.broker.policies.source import PolicySource
from anabranch.broker.schemas import Schemas
from anabranch.broker.topic import Topic
from anabranch.client.admin import Peeked
from anabranch.ids import Position, TopicName
from anabranch.managed_ledger.cursor import Cursor
from anabranch.policies import Bundles, JsonDocument, NamespacePolicies, TopicPolicies
from anabranch.policies.effective import UNDEFINED, PolicyDefaults
from anabranch.testing.planted import original, planted


@planted("what_is_missing_is_answered_as_done", target="anabranch.admin.unserved:not_supported")
def what_is_missing_is_answered_as_done(what: str) -> None:
    """Whoever asks for what is not there hears that it was done."""
    del what


@planted("peeked_batches_stay_whole", target="anabranch.client.admin.documents:Peeked.messages")
def peeked_batches_stay_whole(self: Peeked) -> list[Peeked]:
    """What is looked at is never a batch."""
    return [self]


@planted("numbers_of_any_size_are_stored", target="anabranch.policies.json_documents:check_numbers")
def numbers_of_any_size_are_stored(document: JsonDocument) -> None:
    """Whether Pulsar can read a number is not asked."""
    del document


@planted("boundaries_are_believed", target="anabranch.policies.namespaces:given_bundles")
def boundaries_are_believed(boundaries: Sequence[str]) -> Bundles:
    """A namespace is cut wherever somebody says."""
    return Bundles(boundaries=tuple(boundaries), num_bundles=len(boundaries) - 1)


@planted("clusters_are_named_as_one_likes", target="anabranch.admin.replication:_wanted")
async def clusters_are_named_as_one_likes(call: Call) -> tuple[str, ...]:
    """Replication to any cluster is stored, and goes nowhere."""
    return tuple(call.json())


@planted(
    "policies_of_topics_stay_for_good",
    target="anabranch.broker.policies.source:PolicySource.forget",
)
async def policies_of_topics_stay_for_good(self: PolicySource, topic: TopicName) -> None:
    """What was decided for a topic is never forgotten."""
    del self, topic


@planted("acknowledged_messages_are_counted", target="anabranch.admin.backlog_analysis:_counted")
async def acknowledged_messages_are_counted(
    topic: Topic, cursor: Cursor, start: Position
) -> dict[str, object]:
    """A backlog is as long as its topic."""
    count = cast(
        "Callable[..., Awaitable[dict[str, object]]]", original("acknowledged_messages_are_counted")
    )
    return {**await count(topic, cursor, start), "entries": topic.ledger.entry_count}


@planted("expiry_by_message_takes_everything", target="anabranch.broker.topic_operations:expire_to")
async def expiry_by_message_takes_everything(topic: Topic, name: str, last: Position) -> bool:
    """Whatever message is named, all expire."""
    del last
    return await topic_operations.skip_all(topic, name) > 0


@planted("all_topics_of_a_bundle_are_shown", target="anabranch.admin.bundles:_is_wanted")
def all_topics_of_a_bundle_are_shown(name: TopicName, wanted: Collection[TopicName]) -> bool:
    """Whichever topics of a bundle are asked for, all of it are shown."""
    del name, wanted
    return True


@planted("places_of_schemas_are_their_numbers", target="anabranch.broker.schemas:Schemas.places")
async def places_of_schemas_are_their_numbers(
    self: Schemas, topic: TopicName
) -> list[tuple[int, Position]]:
    """Versions are said to be stored one after the other, in a ledger that is none."""
    versions = await self.versions(topic)
    return [(number, Position(-1, number)) for number in range(len(versions))]


@planted("older_policies_are_deaf", target="anabranch.policies.effective:_strategy")
def older_policies_are_deaf(
    defaults: PolicyDefaults, namespace: NamespacePolicies, own: TopicPolicies
) -> str:
    """What a namespace says in the older policy is stored, and nobody looks at it."""
    for chosen in (own.schema_compatibility_strategy, namespace.schema_compatibility_strategy):
        if chosen is not None and chosen != UNDEFINED:
            return chosen
    return defaults.schema_compatibility_strategy


@planted("transactions_are_left_unanswered", target="anabranch.broker.requests:_refuse")
def transactions_are_left_unanswered(session: Any, command: Any, code: Any, text: str) -> None:
    """Whoever asks for what is not served waits for ever."""
    del session, command, code, text


@planted("consumers_have_no_backlog", target="anabranch.wire.replies:consumer_stats_response")
def consumers_have_no_backlog(stats: Any) -> Any:
    """What waits for a consumer is not told."""
    stats.msgBacklog = 0
    return original("consumers_have_no_backlog")(stats)
