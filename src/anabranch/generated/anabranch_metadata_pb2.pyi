from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("hello", "welcome", "refusal", "requests", "replies")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    welcome: Welcome
    refusal: Error
    requests: Requests
    replies: Replies
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Error, _Mapping]] = ..., requests: _Optional[_Union[Requests, _Mapping]] = ..., replies: _Optional[_Union[Replies, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "features", "timeout_ms", "session", "secret", "replaces")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    session: int
    secret: bytes
    replaces: int
    def __init__(self, protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ..., session: _Optional[int] = ..., secret: _Optional[bytes] = ..., replaces: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "session", "secret", "timeout_ms", "revision")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    session: int
    secret: bytes
    timeout_ms: int
    revision: Revision
    def __init__(self, protocol: _Optional[int] = ..., session: _Optional[int] = ..., secret: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., revision: _Optional[_Union[Revision, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "path")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    path: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class Requests(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "ping", "get", "exists", "children", "scan", "scan_index", "events_after", "subscribe", "export", "next", "drop", "write", "restore", "end_session", "close")
    ID_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    SCAN_INDEX_FIELD_NUMBER: _ClassVar[int]
    EVENTS_AFTER_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    END_SESSION_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    id: int
    ping: Ping
    get: Path
    exists: Path
    children: Path
    scan: Scan
    scan_index: ScanIndex
    events_after: EventsAfter
    subscribe: Subscribe
    export: Path
    next: Cursor
    drop: Cursor
    write: Write
    restore: Restore
    end_session: EndSession
    close: Ping
    def __init__(self, id: _Optional[int] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., get: _Optional[_Union[Path, _Mapping]] = ..., exists: _Optional[_Union[Path, _Mapping]] = ..., children: _Optional[_Union[Path, _Mapping]] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., scan_index: _Optional[_Union[ScanIndex, _Mapping]] = ..., events_after: _Optional[_Union[EventsAfter, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., export: _Optional[_Union[Path, _Mapping]] = ..., next: _Optional[_Union[Cursor, _Mapping]] = ..., drop: _Optional[_Union[Cursor, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., restore: _Optional[_Union[Restore, _Mapping]] = ..., end_session: _Optional[_Union[EndSession, _Mapping]] = ..., close: _Optional[_Union[Ping, _Mapping]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("answered_below",)
    ANSWERED_BELOW_FIELD_NUMBER: _ClassVar[int]
    answered_below: int
    def __init__(self, answered_below: _Optional[int] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class Scan(_message.Message):
    __slots__ = ("prefix", "after")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ScanIndex(_message.Message):
    __slots__ = ("index", "key", "after_path", "last")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AFTER_PATH_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    index: str
    key: str
    after_path: str
    last: str
    def __init__(self, index: _Optional[str] = ..., key: _Optional[str] = ..., after_path: _Optional[str] = ..., last: _Optional[str] = ...) -> None: ...

class EventsAfter(_message.Message):
    __slots__ = ("since", "prefix")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    since: Revision
    prefix: str
    def __init__(self, since: _Optional[_Union[Revision, _Mapping]] = ..., prefix: _Optional[str] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: Revision
    def __init__(self, since: _Optional[_Union[Revision, _Mapping]] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    def __init__(self, cursor: _Optional[int] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("number", "answered_below", "operations")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BELOW_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    number: int
    answered_below: int
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, number: _Optional[int] = ..., answered_below: _Optional[int] = ..., operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("put", "delete")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    put: Put
    delete: Delete
    def __init__(self, put: _Optional[_Union[Put, _Mapping]] = ..., delete: _Optional[_Union[Delete, _Mapping]] = ...) -> None: ...

class Expected(_message.Message):
    __slots__ = ("absent", "version")
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    absent: bool
    version: Version
    def __init__(self, absent: _Optional[bool] = ..., version: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class Put(_message.Message):
    __slots__ = ("path", "value", "expected", "ephemeral", "sequential", "indexes", "guard")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    SEQUENTIAL_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    path: str
    value: bytes
    expected: Expected
    ephemeral: bool
    sequential: bool
    indexes: _containers.RepeatedCompositeFieldContainer[IndexKey]
    guard: Guard
    def __init__(self, path: _Optional[str] = ..., value: _Optional[bytes] = ..., expected: _Optional[_Union[Expected, _Mapping]] = ..., ephemeral: _Optional[bool] = ..., sequential: _Optional[bool] = ..., indexes: _Optional[_Iterable[_Union[IndexKey, _Mapping]]] = ..., guard: _Optional[_Union[Guard, _Mapping]] = ...) -> None: ...

class Delete(_message.Message):
    __slots__ = ("path", "expected", "guard")
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    path: str
    expected: Expected
    guard: Guard
    def __init__(self, path: _Optional[str] = ..., expected: _Optional[_Union[Expected, _Mapping]] = ..., guard: _Optional[_Union[Guard, _Mapping]] = ...) -> None: ...

class Guard(_message.Message):
    __slots__ = ("path", "version")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    path: str
    version: Version
    def __init__(self, path: _Optional[str] = ..., version: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class IndexKey(_message.Message):
    __slots__ = ("index", "key")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    index: str
    key: str
    def __init__(self, index: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class Restore(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class EndSession(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class Replies(_message.Message):
    __slots__ = ("events", "responses")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "revision", "error", "node", "exists", "nodes", "names", "records", "events", "outcomes", "count")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    id: int
    revision: Revision
    error: Error
    node: Node
    exists: bool
    nodes: Nodes
    names: Names
    records: Records
    events: Events
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    count: int
    def __init__(self, id: _Optional[int] = ..., revision: _Optional[_Union[Revision, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., node: _Optional[_Union[Node, _Mapping]] = ..., exists: _Optional[bool] = ..., nodes: _Optional[_Union[Nodes, _Mapping]] = ..., names: _Optional[_Union[Names, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., count: _Optional[int] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("nodes", "more", "last_key", "last_path")
    NODES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    LAST_PATH_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    more: bool
    last_key: str
    last_path: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., more: _Optional[bool] = ..., last_key: _Optional[str] = ..., last_path: _Optional[str] = ...) -> None: ...

class Names(_message.Message):
    __slots__ = ("names", "cursor")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    cursor: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., cursor: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records", "cursor")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    cursor: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., cursor: _Optional[int] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("events", "up_to", "more")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    up_to: Revision
    more: bool
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., up_to: _Optional[_Union[Revision, _Mapping]] = ..., more: _Optional[bool] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("value", "stat")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STAT_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    stat: Stat
    def __init__(self, value: _Optional[bytes] = ..., stat: _Optional[_Union[Stat, _Mapping]] = ...) -> None: ...

class Stat(_message.Message):
    __slots__ = ("path", "version", "revision", "created_ms", "modified_ms", "ephemeral", "created_by_self")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_SELF_FIELD_NUMBER: _ClassVar[int]
    path: str
    version: Version
    revision: Revision
    created_ms: int
    modified_ms: int
    ephemeral: bool
    created_by_self: bool
    def __init__(self, path: _Optional[str] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., revision: _Optional[_Union[Revision, _Mapping]] = ..., created_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., ephemeral: _Optional[bool] = ..., created_by_self: _Optional[bool] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("stat", "error")
    STAT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    stat: Stat
    error: Error
    def __init__(self, stat: _Optional[_Union[Stat, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("epoch", "native", "life")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    native: int
    life: int
    def __init__(self, epoch: _Optional[int] = ..., native: _Optional[int] = ..., life: _Optional[int] = ...) -> None: ...

class Revision(_message.Message):
    __slots__ = ("epoch", "index")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    index: int
    def __init__(self, epoch: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "path", "revision")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: int
    path: str
    revision: Revision
    def __init__(self, kind: _Optional[int] = ..., path: _Optional[str] = ..., revision: _Optional[_Union[Revision, _Mapping]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("path", "value", "native_version", "created_ms", "modified_ms", "next_sequence", "session", "indexes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NATIVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    path: str
    value: bytes
    native_version: int
    created_ms: int
    modified_ms: int
    next_sequence: int
    session: int
    indexes: _containers.RepeatedCompositeFieldContainer[IndexKey]
    def __init__(self, path: _Optional[str] = ..., value: _Optional[bytes] = ..., native_version: _Optional[int] = ..., created_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., next_sequence: _Optional[int] = ..., session: _Optional[int] = ..., indexes: _Optional[_Iterable[_Union[IndexKey, _Mapping]]] = ...) -> None: ...
