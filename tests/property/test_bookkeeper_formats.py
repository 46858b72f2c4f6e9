"""BookKeeper's formats: what is written is read, and hostile bytes are refused with a reason."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.errors import Corruption, FormatError
from anabranch.generated import bookkeeper_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY, DigestType, PacketDigest
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    decode_metadata,
    encode_metadata,
)
from anabranch.ledgers.bookkeeper.ledger_paths import (
    Layout,
    LedgerPaths,
    decode_layout,
    encode_layout,
)
from anabranch.ledgers.bookkeeper.service_info import registered_address

T = TypeVar("T")
LAYOUTS = list(Layout)
REGISTRATION = b"\x32\x14\x0a\x01i\x10\x50\x1a\x01h\x22\x0abookie-rpc"
CLOSED = LedgerMetadata(
    ledger_id=7,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    state=State.CLOSED,
    last_entry_id=20,
    length=900,
    digest=DigestType.CRC32C,
    password=b"passwd",
    segments=(EnsembleSegment(0, ("a:1", "b:1", "c:1")), EnsembleSegment(9, ("a:1", "d", "c:1"))),
    ctime_ms=1_700_000_000_000,
    custom_metadata={"application": b"pulsar", "component": b"managed-ledger"},
    ctoken=2**60,
)
OPEN = replace(CLOSED, state=State.OPEN, last_entry_id=-1, length=0, segments=CLOSED.segments[:1])
TEXT = b"""BookieMetadataFormatVersion\t2
quorumSize: 1 ensembleSize: 1 length: 0 state: OPEN
segment { ensembleMember: "a:1" firstEntryId: 0 }"""
DOCUMENTS = [encode_metadata(CLOSED), encode_metadata(OPEN), TEXT]
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FUZZ = settings(SLOW, max_examples=600)
INT64 = st.integers(-(2**63), 2**63 - 1)
ORDINAL = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
UNKNOWN = st.sampled_from([b"", b"\xf8\x06\x05", b"\xfa\x06\x02ab\xf8\x07\x01"])


@st.composite
def ledger_metadata(draw: st.DrawFn) -> LedgerMetadata:
    ensemble = draw(st.integers(1, 4))
    write = draw(st.integers(1, ensemble))
    closed = draw(st.booleans())
    firsts = sorted({0, *draw(st.lists(ORDINAL, max_size=3))})
    bookies = st.lists(NAMES, min_size=ensemble, max_size=ensemble).map(tuple)
    return LedgerMetadata(
        ledger_id=draw(ORDINAL),
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=draw(st.integers(1, write)),
        state=State.CLOSED if closed else draw(st.sampled_from([State.OPEN, State.IN_RECOVERY])),
        last_entry_id=draw(st.integers(-1, 2**63 - 1)) if closed else -1,
        length=draw(ORDINAL) if closed else 0,
        digest=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=20)),
        segments=tuple(EnsembleSegment(first, draw(bookies), draw(UNKNOWN)) for first in firsts),
        ctime_ms=draw(st.none() | INT64),
        custom_metadata=draw(st.dictionaries(NAMES, st.binary(max_size=20), max_size=3)),
        ctoken=draw(st.none() | INT64),
        unknown_fields=draw(UNKNOWN),
    )


@st.composite
def spoilt(draw: st.DrawFn, samples: st.SearchStrategy[bytes]) -> bytes:
    data = bytearray(draw(samples))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        action = draw(st.sampled_from(["set", "cut", "insert", "remove"]))
        if action == "set" and data:
            data[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del data[place:]
        elif action == "insert":
            data[place:place] = draw(st.binary(max_size=12))
        else:
            del data[place : place + draw(st.integers(1, 8))]
    return bytes(data)


@st.composite
def lying(draw: st.DrawFn) -> bytes:
    """A sound document with one number in it replaced."""
    message = pb.LedgerMetadataFormat()
    head = len(b"BookieMetadataFormatVersion\t3\n")
    message.ParseFromString(DOCUMENTS[0][head + 2 :])
    name = draw(st.sampled_from(["quorumSize", "ensembleSize", "ackQuorumSize", "lastEntryId"]))
    setattr(message, name, draw(st.integers(-3, 5)))
    if draw(st.booleans()):
        message.segment[-1].firstEntryId = draw(st.integers(-1, 2))
    body = message.SerializeToString()
    return DOCUMENTS[0][:head] + bytes([len(body) % 128 | 128, len(body) // 128]) + body


def found_or_refused(read: Callable[[bytes], T], data: bytes, name: str) -> T | None:
    """What is read; None if it is refused, by a reason that says of what."""
    try:
        return read(data)
    except FormatError as refusal:
        reason = str(refusal)
    assert name in reason
    return None


@SLOW
@given(ledger_metadata())
def test_metadata_survive_their_bytes(metadata: LedgerMetadata) -> None:
    data = encode_metadata(metadata)
    found = decode_metadata(metadata.ledger_id, data)
    assert found == metadata
    assert list(found.custom_metadata) == list(metadata.custom_metadata)
    assert encode_metadata(found) == data


@pytest.mark.goal("core.S3", part="bookkeeper", broken_by="ledger_metadata_are_believed")
@FUZZ
@given(spoilt(st.sampled_from(DOCUMENTS)) | lying() | st.binary(max_size=60))
def test_hostile_metadata_are_refused_or_sound(data: bytes) -> None:
    found = found_or_refused(partial(decode_metadata, 7), data, "ledger 7")
    if found is not None:
        again = encode_metadata(found)
        assert decode_metadata(7, again) == found
        assert 1 <= found.ack_quorum <= found.write_quorum <= found.ensemble_size
        assert all(len(segment.bookies) == found.ensemble_size for segment in found.segments)


@SLOW
@given(
    st.sampled_from(DigestType),
    st.binary(max_size=20),
    ORDINAL,
    ORDINAL,
    st.integers(-1, 2**63 - 1),
    st.binary(max_size=200),
    st.integers(0, 2**40),
)
def test_packets_survive_their_bytes(
    digest_type: DigestType,
    password: bytes,
    ledger_id: int,
    entry_id: int,
    confirmed: int,
    payload: bytes,
    before: int,
) -> None:
    digest = PacketDigest(digest_type, password)
    length = before + len(payload)
    packet = digest.header_and_digest(ledger_id, entry_id, confirmed, length, payload) + payload
    assert len(packet) == digest.overhead_bytes + len(payload)
    for asked in (entry_id, LAST_ENTRY):
        found = digest.open_packet(packet, ledger_id, asked)
        assert found[:3] == (entry_id, confirmed, length)
        assert found.payload == payload
    assert digest.open_lac_packet(digest.lac_packet(ledger_id, confirmed), ledger_id) == confirmed


@pytest.mark.goal("core.S3", part="bookkeeper", broken_by="packets_are_believed")
@FUZZ
@given(
    st.sampled_from([kind for kind in DigestType if kind is not DigestType.DUMMY]),
    st.data(),
)
def test_hostile_packets_are_refused(digest_type: DigestType, data: st.DataObject) -> None:
    digest = PacketDigest(digest_type, b"passwd")
    packet = digest.header_and_digest(7, 3, 1, 99, b"payload") + b"payload"
    hostile = data.draw(spoilt(st.just(packet)))
    if hostile == packet:
        return
    with pytest.raises(Corruption, match="ledger 7"):
        digest.open_packet(hostile, 7, 3)
    confirmed = digest.lac_packet(7, 3)
    hostile = data.draw(spoilt(st.just(confirmed)))
    if hostile != confirmed:
        with pytest.raises(Corruption, match="ledger 7"):
            digest.open_lac_packet(hostile, 7)


@SLOW
@given(st.binary(max_size=80) | spoilt(st.just(REGISTRATION)))
def test_hostile_registrations_are_refused_or_sound(data: bytes) -> None:
    found = found_or_refused(partial(registered_address, "bookie:3181"), data, "bookie:3181")
    if found is not None:
        assert isinstance(found.host, str)
        assert found.host
        assert 1 <= found.port < 65_536


@SLOW
@given(spoilt(st.sampled_from([encode_layout(layout) for layout in LAYOUTS])))
def test_hostile_layouts_are_refused_or_known(data: bytes) -> None:
    layout = found_or_refused(partial(decode_layout, "/ledgers/LAYOUT"), data, "LAYOUT")
    if layout is not None:
        assert data.rstrip(b"\n") == encode_layout(layout)


@SLOW
@given(ORDINAL)
def test_paths_and_ids_are_one_to_one(ledger_id: int) -> None:
    for layout in LAYOUTS:
        paths = LedgerPaths(layout=layout)
        assert paths.ledger_id(paths.ledger(ledger_id)) == ledger_id
