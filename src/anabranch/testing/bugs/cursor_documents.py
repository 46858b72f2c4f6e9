"""Planted bugs of the documents of cursors and schemas."""

from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import Message

from anabranch.generated.ml_data_formats_pb2 import ManagedCursorInfo
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.schema_formats import IndexEntry
from anabranch.testing.planted import original, planted

_FORMATS = "anabranch.managed_ledger.formats"


@planted("ranges_in_the_node_are_dropped", target=f"{_FORMATS}:encode_cursor")
def ranges_in_the_node_are_dropped(
    state: Acknowledged,
    properties: Mapping[str, int],
    cursor_properties: Mapping[str, str],
    extra: bytes = b"",
) -> bytes | None:
    """The node of a cursor holds its mark alone."""
    value = original("ranges_in_the_node_are_dropped")(state, properties, cursor_properties, extra)
    if value is None:
        return None
    info = ManagedCursorInfo.FromString(value)
    info.ClearField("individualDeletedMessages")
    return info.SerializeToString()


@planted("cursors_lose_what_others_keep", target=f"{_FORMATS}:_without")
def cursors_lose_what_others_keep(info: Message, ours: Iterable[str]) -> bytes:
    """Fields that are not known here are not written back."""
    del info, ours
    return b""


@planted(
    "schemas_lose_what_others_keep",
    target="anabranch.managed_ledger.schema_formats:encode_locator",
)
def schemas_lose_what_others_keep(index: Sequence[IndexEntry], extra: bytes = b"") -> bytes:
    """A new version is published without what a newer writer has put beside the others."""
    del extra
    value: bytes = original("schemas_lose_what_others_keep")(index)
    return value
