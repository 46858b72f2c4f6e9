"""Which ledgers the metadata name, in all the places where Pulsar and we note them."""

from collections.abc import AsyncIterator

import pytest

from anabranch.errors import FormatError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.managed_ledger.references import named_ledgers, references
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

ROOT = "/managed-ledgers"


@pytest.fixture
async def metadata() -> AsyncIterator[MetadataStore]:
    store = await open_store("memory:", real_runtime())
    yield store
    await store.close()


def chain(*ledger_ids: int) -> bytes:
    info = pb.ManagedLedgerInfo()
    for ledger_id in ledger_ids:
        info.ledgerInfo.add(ledgerId=ledger_id)
    return info.SerializeToString()


def cursor(
    ledger_id: int, numbers: dict[str, int] | None = None, texts: dict[str, str] | None = None
) -> bytes:
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=ledger_id, markDeleteLedgerId=1, markDeleteEntryId=0
    )
    for name, number in (numbers or {}).items():
        info.properties.add(name=name, value=number)
    for name, text in (texts or {}).items():
        info.cursorProperties.add(name=name, value=text)
    return info.SerializeToString()


async def test_every_place_is_looked_at(metadata: MetadataStore) -> None:
    topic, beat = f"{ROOT}/t/n/persistent/topic", f"{ROOT}/pulsar/c/host:8080/persistent/beat"
    await metadata.put(topic, chain(1, 5))
    await metadata.put(f"{topic}/s", cursor(-1))
    await metadata.put(f"{topic}/large", cursor(6))
    await metadata.put(f"{topic}/__compaction", cursor(-1, {"CompactedTopicLedger": 7}))
    delayed = {"#pulsar.internal.delayed.bucket_1_5": "8", "user": "9"}
    await metadata.put(f"{topic}/delayed", cursor(-1, texts=delayed))
    await metadata.put(beat, chain(20))
    await metadata.put(f"{beat}/reader", cursor(21))
    assert await named_ledgers(metadata) == {1, 5, 6, 7, 8, 20, 21}
    users = {place.ledger_id: user async for place, user in references(metadata)}
    assert users[7] == "cursor t/n/persistent/topic/__compaction"
    assert users[20] == "managed ledger pulsar/c/host:8080/persistent/beat"


async def test_what_cannot_be_read_is_no_reason_to_take_ledgers_for_unused(
    metadata: MetadataStore,
) -> None:
    await metadata.put(f"{ROOT}/t/n/persistent/topic", b"\xff\xff")
    with pytest.raises(FormatError, match="managed ledger t/n/persistent/topic"):
        await named_ledgers(metadata)
