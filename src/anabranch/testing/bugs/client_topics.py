"""Planted bugs of `anabranch.client`: many topics, letters, chunks, owners."""

from typing import Any

from anabranch.client.chunks import Assembly
from anabranch.client.letters import Hopeless
from anabranch.client.message import Message
from anabranch.client.routing import Routes
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import Position
from anabranch.testing.planted import original, planted
from anabranch.wire import Buffer


@planted("sdk_scatters_keys", target="anabranch.client.routing:Routes.choose")
def sdk_scatters_keys(self: Routes, key: str | bytes | None, partitions: int, *, stay: bool) -> int:
    """Messages with a key go around like all others."""
    chosen: int = original("sdk_scatters_keys")(self, None, partitions, stay=stay)
    return chosen


@planted("sdk_sees_no_new_topics", target="anabranch.client.many_topics:ManyTopics.add")
async def sdk_sees_no_new_topics(self: Any, topics: Any) -> None:
    """What comes after the first look is not received from."""
    if not self._topics:
        await original("sdk_sees_no_new_topics")(self, topics)


@planted("sdk_never_gives_up", target="anabranch.client.letters:Hopeless.look_at")
def sdk_never_gives_up(self: Hopeless, messages: list[Message]) -> list[Message]:
    """However often a message was refused, it comes again."""
    return []


@planted("sdk_loses_a_chunk", target="anabranch.client.chunks:Assembly.add")
def sdk_loses_a_chunk(
    self: Assembly, metadata: MessageMetadata, payload: Buffer, place: Position
) -> tuple[bytes, Position] | None:
    """The last chunk of a message is lost."""
    found: tuple[bytes, Position] | None = original("sdk_loses_a_chunk")(
        self, metadata, payload, place
    )
    return None if found is None else (found[0][: -len(payload)], found[1])


@planted("sdk_waits_for_nobody", target="anabranch.client.connection:is_waiting")
def sdk_waits_for_nobody(answer: Any) -> bool:
    """Who waits for a topic goes on as if it were its own."""
    return False


@planted("sdk_reads_by_its_own_schema", target="anabranch.client.avro:decode")
def sdk_reads_by_its_own_schema(schema: Any, data: bytes) -> Any:
    """What was written by another schema is read with its fields in another order."""
    value = original("sdk_reads_by_its_own_schema")(schema, data)
    names = sorted(value)
    return dict(zip(names, (value[name] for name in reversed(names)), strict=True))


@planted(
    "sdk_clears_nothing", target="anabranch.client.admin.policy_calls:PolicyCalls.clear_policy"
)
async def sdk_clears_nothing(self: Any, name: str, policy: Any) -> None:
    """A policy that is taken back stays."""
    del self, name, policy
