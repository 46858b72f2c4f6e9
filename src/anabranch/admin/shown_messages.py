"""A stored message as an answer: its payload is the body, and what is said about it are headers.

Names and forms are those of Pulsar 4 and 5. A producer may write whatever it likes into what is
shown here, so nothing of it becomes the name of a header, and no value ends one.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from anabranch.admin.limits import SHOWN_HEADER_BYTES_MAX
from anabranch.admin.refusals import RestRefused
from anabranch.broker.topic_operations import StoredMessage
from anabranch.errors import ProtocolError
from anabranch.wire import MessageMetadata, parse_entry
from anabranch.wire.compression import decompress

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999; what claims to be of later is shown as of then."""
_NUMBERS: Final = {
    "num_chunks_from_msg": "num-chunks-from-msg",
    "total_chunk_msg_size": "total-chunk-msg-size",
    "chunk_id": "chunk-id",
    "highest_sequence_id": "highest-sequence-id",
    "marker_type": "marker-type",
}
_TEXTS: Final = {
    "replicated_from": "replicated-from",
    "partition_key": "partition-key",
    "encryption_algo": "encryption-algo",
    "uuid": "uuid",
}
_BYTES: Final = {"ordering_key": "Base64-ordering-key"}
_FLAGS: Final = {
    "partition_key_b64_encoded": "partition-key-b64-encoded",
    "null_value": "null-value",
    "null_partition_key": "null-partition-key",
}
_TIMES: Final = {"event_time": "event-time", "deliver_at_time": "deliver-at-time"}


def shown(found: StoredMessage | None) -> Response:
    """Answer with a message.

    Raises:
        RestRefused: if there is none, or it cannot be read, or is said to be too much.
    """
    if found is None:
        raise RestRefused(404, "Message not found")
    try:
        metadata, payload = parse_entry(found.entry)
        # An encrypted message is for whoever has the key: shown as it is.
        data = bytes(payload)
        if metadata.compression and not metadata.encryption_keys:
            data = bytes(decompress(metadata.compression, payload, metadata.uncompressed_size))
    except ProtocolError as error:
        raise RestRefused(422, f"message {found.position} cannot be read: {error}") from None
    headers = {
        "X-Pulsar-Message-ID": str(found.position),
        "X-Pulsar-PROPERTY": _properties(metadata),
        "X-Pulsar-Is-Encrypted": _flag(bool(metadata.encryption_keys)),
        **{f"X-Pulsar-{name}": value for name, value in _said(metadata)},
    }
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(data))
    size = sum(len(value) for value in headers.values())
    if size > SHOWN_HEADER_BYTES_MAX:
        raise RestRefused(
            422,
            f"message {found.position} has {size} bytes beside its payload: no more than "
            f"{SHOWN_HEADER_BYTES_MAX} fit into the head of an answer",
        )
    answer = Response(data, media_type="application/octet-stream")
    # With their capitals: Pulsar's own client looks for them so where it goes through all headers.
    answer.raw_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
    return answer


def _said(metadata: MessageMetadata) -> Iterator[tuple[str, str]]:
    yield "publish-time", _moment(metadata.publish_time)
    yield "producer-name", _plain(metadata.producer_name)
    yield "sequence-id", str(metadata.sequence_id)
    for field, name in _TIMES.items():
        if getattr(metadata, field):
            yield name, _moment(getattr(metadata, field))
    present = {field.name: value for field, value in metadata.ListFields()}
    for field, name in _NUMBERS.items():
        if field in present:
            yield name, str(present[field])
    for field, name in _FLAGS.items():
        if field in present:
            yield name, _flag(present[field])
    for field, name in _TEXTS.items():
        if field in present:
            yield name, _plain(present[field])
    for field, name in _BYTES.items():
        if field in present:
            yield name, b64encode(present[field]).decode()


def _properties(metadata: MessageMetadata) -> str:
    said = {_text(pair.key): _text(pair.value) for pair in metadata.properties}
    return json.dumps(said, separators=(",", ":")).replace("\x7f", "\\u007f")


def _moment(time_ms: int) -> str:
    moment = datetime.fromtimestamp(min(max(time_ms, 0), _LAST_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _plain(value: str | bytes) -> str:
    """What may stand in a header: neither line ends nor anything beyond ASCII."""
    return "".join(each if " " <= each <= "~" else "?" for each in _text(value))
