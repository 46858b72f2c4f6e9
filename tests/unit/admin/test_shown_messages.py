"""A message that is looked at: whatever its producer wrote, the answer is one that can be read."""

import json

import h11
import pytest
from topic_with_messages import SUBSCRIPTION, ask, stored

from anabranch.ids import TopicName
from anabranch.wire import MessageMetadata, build_entry

__all__ = ["ask"]
BASE = {"producer_name": "p", "sequence_id": 9, "publish_time": 1}


async def looked_at(ask, **said):
    """Store a message about which a producer says something, and look at it."""
    topic = ask.server.broker.topics.get(TopicName.parse("persistent://public/default/x"))
    properties, keys = said.pop("properties", {}), said.pop("encryption_keys", ())
    metadata = MessageMetadata(**{**BASE, **said})
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    for key in keys:
        metadata.encryption_keys.add(key=key, value=b"sealed")
    await stored(topic, build_entry(metadata, b"payload"))
    answer = await ask("GET", f"{SUBSCRIPTION}/position/6")
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    try:
        h11.Response(status_code=answer.status, headers=headers)
    except h11.LocalProtocolError as error:
        pytest.fail(f"no web server can send that: {error}")
    return answer


@pytest.mark.goal("core.B13", part="peek", broken_by="properties_are_headers")
@pytest.mark.parametrize(
    "properties",
    [
        {"k": "v", "Large Letters": "kept"},
        {"a b": "x", "c:d": "y", "": "z"},
        {"ünï": "wört\u2028"},
        {"k": "line\r\nX-Evil: 1\x00\x7f"},
        {f"k{number}": "v" for number in range(500)},
    ],
    ids=["plain", "no names of headers", "beyond ASCII", "line ends", "many"],
)
async def test_properties_are_shown_whatever_they_are(ask, properties):
    answer = await looked_at(ask, properties=properties)
    assert (answer.status, answer.body) == (200, b"payload")
    assert json.loads(answer.headers["X-Pulsar-PROPERTY"]) == properties
    assert not [name for name in answer.headers if name.startswith("X-Pulsar-PROPERTY-")]


@pytest.mark.goal("core.B13", part="peek", broken_by="any_time_is_written_out")
@pytest.mark.parametrize("field", ["publish_time", "event_time", "deliver_at_time"])
async def test_a_time_that_no_calendar_has_is_shown_as_its_end(ask, field):
    answer = await looked_at(ask, **{field: 2**62})
    assert (answer.status, answer.body) == (200, b"payload")
    assert answer.headers[f"X-Pulsar-{field.replace('_', '-')}"].startswith("9999-12-31")
    named = await looked_at(ask, **{field: 1_700_000_000_123})
    assert named.status == 200


async def test_what_is_said_about_a_message_is_shown(ask):
    answer = await looked_at(
        ask,
        partition_key="a2V5",
        partition_key_b64_encoded=True,
        ordering_key=b"\xff",
        null_value=True,
        uuid="u",
        chunk_id=1,
        num_chunks_from_msg=2,
        total_chunk_msg_size=14,
        encryption_keys=["mine"],
        compression=1,
        event_time=1_700_000_000_123,
    )
    assert (answer.status, answer.body) == (200, b"payload"), "sealed: it cannot be unpacked"
    shown = {
        name.removeprefix("X-Pulsar-"): value
        for name, value in answer.headers.items()
        if name.startswith("X-Pulsar-") and name != "X-Pulsar-Message-ID"
    }
    assert shown == {
        "PROPERTY": "{}",
        "Is-Encrypted": "true",
        "publish-time": "1970-01-01T00:00:00.001Z",
        "event-time": "2023-11-14T22:13:20.123Z",
        "producer-name": "p",
        "sequence-id": "9",
        "partition-key": "a2V5",
        "partition-key-b64-encoded": "true",
        "Base64-ordering-key": "/w==",
        "null-value": "true",
        "uuid": "u",
        "chunk-id": "1",
        "num-chunks-from-msg": "2",
        "total-chunk-msg-size": "14",
    }


async def test_more_than_an_answer_can_say_is_refused(ask):
    answer = await looked_at(ask, partition_key="k" * 100_000)
    assert answer.status == 422
    assert b"beside its payload" in answer.body
    assert (await ask("GET", f"{SUBSCRIPTION}/position/1")).status == 200


async def test_a_key_with_line_ends_ends_no_header(ask):
    answer = await looked_at(ask, partition_key="k\r\nX-Evil: 1", producer_name="ü")
    said = answer.headers["X-Pulsar-partition-key"], answer.headers["X-Pulsar-producer-name"]
    assert said == ("k??X-Evil: 1", "?")
