"""What payloads are: values into bytes and back, and the schema that the broker is told.

    orders = JsonSchema(Order)
    producer = await client.producer("orders", schema=orders.schema)
    await producer.send(orders.encode(Order("tea", 3)))
    ...
    order = orders.decode(message.value)

Values written under an older version of a schema are read by `Reading`.
"""

import base64
import json
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from anabranch.client import avro
from anabranch.client.records import from_plain, record_schema, to_plain
from anabranch.client.settings import Schema
from anabranch.errors import FormatError

if TYPE_CHECKING:
    from anabranch.client.client import Client
    from anabranch.client.message import Message

T = TypeVar("T")
P = TypeVar("P", bound=ProtobufMessage)


class Codec(Protocol[T]):
    """A kind of values."""

    @property
    def schema(self) -> Schema:
        """What producers and consumers are opened with."""
        ...

    def encode(self, value: T) -> bytes:
        """Write a value. Raises InputError if it is none of these."""
        ...

    def decode(self, data: bytes, written_by: Schema | None = None) -> T:
        """Read a value; `written_by` is the schema it was written by, if that is another.

        Raises:
            FormatError: if the bytes are no such value.
            InputError: if the value lacks something.
        """
        ...


class StringSchema:
    """Texts in UTF-8."""

    schema = Schema("String")

    def encode(self, value: str) -> bytes:
        """See `Codec.encode`."""
        return value.encode()

    def decode(self, data: bytes, written_by: Schema | None = None) -> str:
        """See `Codec.decode`."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"no text in UTF-8: {error}") from None


class JsonSchema(Generic[T]):
    """Dataclasses as JSON; bytes in them as base64."""

    def __init__(self, kind: type[T]) -> None:
        """Raises ConfigError if no schema can be made of the dataclass."""
        self._kind = kind
        self.schema = Schema("Json", json.dumps(record_schema(kind)).encode(), kind.__name__)

    def encode(self, value: T) -> bytes:
        """See `Codec.encode`."""
        return json.dumps(to_plain(value, text_bytes=True), separators=(",", ":")).encode()

    def decode(self, data: bytes, written_by: Schema | None = None) -> T:
        """See `Codec.decode`; JSON says itself what it has."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"no JSON: {error}") from None
        return from_plain(self._kind, value)


class AvroSchema(Generic[T]):
    """Dataclasses in Avro's binary form."""

    def __init__(self, kind: type[T]) -> None:
        """Raises ConfigError if no schema can be made of the dataclass."""
        self._kind = kind
        text = json.dumps(record_schema(kind)).encode()
        self.schema = Schema("Avro", text, kind.__name__)
        self._own = avro.AvroSchema(text)
        self._others: dict[bytes, avro.AvroSchema] = {}

    def encode(self, value: T) -> bytes:
        """See `Codec.encode`."""
        return avro.encode(self._own, to_plain(value, text_bytes=False))

    def decode(self, data: bytes, written_by: Schema | None = None) -> T:
        """See `Codec.decode`."""
        writer = self._own
        if written_by is not None and written_by.data != self.schema.data:
            if written_by.data not in self._others:
                self._others[written_by.data] = avro.AvroSchema(written_by.data)
            writer = self._others[written_by.data]
        return from_plain(self._kind, avro.decode(writer, data))


class ProtobufSchema(Generic[P]):
    """Messages of protocol buffers, described by their own descriptors (PROTOBUF_NATIVE)."""

    def __init__(self, kind: type[P]) -> None:
        self._kind = kind
        descriptor = kind.DESCRIPTOR
        files = FileDescriptorSet()
        _add_files(descriptor.file, files, {})
        text = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
        self.schema = Schema("ProtobufNative", json.dumps(text).encode(), descriptor.name)

    def encode(self, value: P) -> bytes:
        """See `Codec.encode`."""
        return value.SerializeToString()

    def decode(self, data: bytes, written_by: Schema | None = None) -> P:
        """See `Codec.decode`; protocol buffers need no other schema."""
        try:
            return self._kind.FromString(data)
        except DecodeError as error:
            raise FormatError(f"no {self._kind.__name__}: {error}") from None


def _add_files(file: Any, files: FileDescriptorSet, known: dict[str, None]) -> None:
    if file.name in known:
        return
    known[file.name] = None
    for other in file.dependencies:
        _add_files(other, files, known)
    file.CopyToProto(files.file.add())


class Reading(Generic[T]):
    """Reads messages, each by the version of the schema that it was written under."""

    def __init__(self, client: "Client", codec: Codec[T]) -> None:
        self._client = client
        self._codec = codec
        self._versions: dict[tuple[str, bytes], Schema] = {}

    async def value_of(self, message: "Message") -> T:
        """The value of a message. Versions are asked for once.

        Raises:
            FormatError: if the payload is no value of its schema.
            InputError: if the value lacks something.
            BrokerRefused: if the broker does not know the version.
        """
        version = message.schema_version
        if version is None:
            return self._codec.decode(message.value)
        key = message.topic, version
        if key not in self._versions:
            self._versions[key] = await self._client.schema(message.topic, version)
        return self._codec.decode(message.value, self._versions[key])
