"""Schemas: versions, lookup, deletion, and Pulsar's bytes."""

import asyncio
from typing import Any

import pytest

from anabranch.errors import FormatError, InputError, NotFound, StoreFailed
from anabranch.generated import schema_registry_format_pb2 as registry
from anabranch.generated import schema_storage_format_pb2 as storage
from anabranch.managed_ledger import SchemaInfo, SchemaStorage, StoredSchema
from anabranch.managed_ledger.schemas import version_bytes, version_of_bytes

ID = "t/ns/topic"
World = Any


def schema(text: str) -> SchemaInfo:
    return SchemaInfo(ID, 4, text.encode(), "me", 1_700_000_000_000, properties={"k": text})


@pytest.fixture
def schemas(world: World) -> SchemaStorage:
    return storage_of(world)


def storage_of(world: World) -> SchemaStorage:
    return world.broker().schemas


@pytest.mark.goal("core.L9", part="versions and deletion", broken_by="known_schema_is_stored_again")
async def test_versions(world: World, schemas: SchemaStorage) -> None:
    assert await schemas.get(ID) is None
    assert await schemas.versions(ID) == []
    for number, text in enumerate(["one", "two", "three"]):
        assert await schemas.put_if_absent(ID, schema(text), text.encode()) == number
    assert await schemas.put_if_absent(ID, schema("two"), b"two") == 1, "known by its hash"
    again = storage_of(world)
    assert await again.get(ID) == StoredSchema(2, schema("three"))
    assert await again.get(ID, 0) == StoredSchema(0, schema("one"))
    assert await again.get(ID, 3) is None
    assert [s.version for s in await again.versions(ID)] == [0, 1, 2]
    assert await again.delete(ID) == 3
    assert await again.get(ID) is None
    assert world.ledgers.ledgers == {}
    with pytest.raises(NotFound):
        await again.delete(ID)
    assert await again.put_if_absent(ID, schema("new"), b"new") == 0


@pytest.mark.goal(
    "core.L9", part="versions and deletion", broken_by="schemas_before_a_deletion_are_found"
)
async def test_schema_marked_as_deleted_begins_anew(world: World, schemas: SchemaStorage) -> None:
    assert await schemas.mark_deleted(ID, "me", 5) is None, "there is none"
    assert await schemas.find(ID, b"one") is None
    for text in ("one", "two"):
        await schemas.put_if_absent(ID, schema(text), text.encode())
    assert [await schemas.find(ID, h) for h in (b"one", b"two", b"three")] == [0, 1, None]
    assert await schemas.mark_deleted(ID, "me", 5) == 2
    assert await schemas.mark_deleted(ID, "me", 6) is None
    again = storage_of(world)
    assert await again.get(ID) is None
    assert await again.versions(ID) == []
    assert await again.find(ID, b"one") is None
    marked = StoredSchema(2, SchemaInfo(ID, 0, b"", "me", 5, deleted=True))
    assert await again.get(ID, 2) == marked
    assert await again.get(ID, 0) == StoredSchema(0, schema("one")), "messages may still name it"
    assert await again.put_if_absent(ID, schema("one"), b"one") == 3, "a version of its own"
    assert await again.find(ID, b"one") == 3
    assert [s.version for s in await again.versions(ID)] == [3]
    with pytest.raises(InputError, match="needs a hash"):
        await again.put_if_absent(ID, schema("x"), b"")
    assert await again.delete(ID) == 4
    assert world.ledgers.ledgers == {}


async def test_deletions_at_once_are_one(world: World) -> None:
    stores = [storage_of(world) for _ in range(4)]
    await stores[0].put_if_absent(ID, schema("x"), b"x")
    assert await asyncio.gather(*(s.mark_deleted(ID, "me", 5) for s in stores)) == [1] * 4
    assert len(world.ledgers.ledgers) == 2


async def test_writers_at_once_get_versions_of_their_own(world: World) -> None:
    stores = [storage_of(world) for _ in range(5)]
    numbers = await asyncio.gather(
        *(s.put_if_absent(ID, schema(str(n)), b"%d" % n) for n, s in enumerate(stores))
    )
    assert sorted(numbers) == [0, 1, 2, 3, 4]
    assert len(world.ledgers.ledgers) == 5, "what lost the race is removed"
    for number, version in enumerate(numbers):
        assert await stores[0].get(ID, version) == StoredSchema(version, schema(str(number)))


async def test_same_schema_at_once_is_one_version(world: World) -> None:
    stores = [storage_of(world) for _ in range(5)]
    numbers = await asyncio.gather(*(s.put_if_absent(ID, schema("x"), b"x") for s in stores))
    assert numbers == [0] * 5
    assert len(world.ledgers.ledgers) == 1


@pytest.mark.goal("core.L9", part="Pulsar's format", broken_by="schema_types_are_those_of_the_wire")
async def test_stored_bytes_are_pulsars(world: World, schemas: SchemaStorage) -> None:
    await schemas.put_if_absent(ID, schema("one"), b"h1")
    await schemas.put_if_absent(ID, schema("two"), b"h2")
    node = await world.metadata.get(f"/schemas/{ID}")
    locator = storage.SchemaLocator.FromString(node.value)
    assert [(e.version, e.hash) for e in locator.index] == [(0, b"h1"), (1, b"h2")]
    assert locator.info == locator.index[1]
    ledgers = [world.ledgers.ledgers[e.position.ledgerId] for e in locator.index]
    assert [e.position.entryId for e in locator.index] == [0, 0]
    assert ledgers[0].custom_metadata == {
        "application": b"pulsar",
        "component": b"schema",
        "pulsar/schemaId": ID.encode(),
    }
    first, second = (storage.SchemaEntry.FromString(held.durable[0]) for held in ledgers)
    assert [(e.version, e.position.ledgerId) for e in first.index] == [(0, -1)]
    assert list(second.index) == [locator.index[0]]
    info = registry.SchemaInfo.FromString(second.schema_data)
    assert (info.type, info.schema, info.user) == (5, b"two", "me")


@pytest.mark.parametrize(("wire", "stored"), [(0, 1), (1, 2), (4, 5), (15, 16), (20, 21), (22, 22)])
async def test_type_numbers(world: World, schemas: SchemaStorage, wire: int, stored: int) -> None:
    await schemas.put_if_absent(ID, SchemaInfo(ID, wire, b""), b"h")
    (held,) = world.ledgers.ledgers.values()
    data = storage.SchemaEntry.FromString(held.durable[0]).schema_data
    assert registry.SchemaInfo.FromString(data).type == stored
    found = await schemas.get(ID)
    assert found is not None
    assert found.info.type == wire


@pytest.mark.parametrize("wire", [-1, 21, 23])
async def test_type_that_is_never_stored(world: World, schemas: SchemaStorage, wire: int) -> None:
    with pytest.raises(InputError, match=f"type {wire}"):
        await schemas.put_if_absent(ID, SchemaInfo(ID, wire, b""), b"h")
    assert world.ledgers.ledgers == {}


async def test_damaged_locator_is_refused_by_name(world: World, schemas: SchemaStorage) -> None:
    await world.metadata.put(f"/schemas/{ID}", b"\xff\xff")
    with pytest.raises(FormatError, match="schema t/ns/topic is not a SchemaLocator"):
        await schemas.get(ID)
    with pytest.raises(FormatError):
        await schemas.put_if_absent(ID, schema("x"), b"x")


def test_version_bytes() -> None:
    assert version_bytes(258) == b"\0\0\0\0\0\0\1\2"
    assert version_of_bytes(version_bytes(258)) == 258
    with pytest.raises(FormatError):
        version_of_bytes(b"\0\0")


async def test_a_version_that_could_not_be_written_leaves_no_ledger(
    world: World, schemas: SchemaStorage
) -> None:
    world.ledgers.appends_fail = True
    for _ in range(3):
        with pytest.raises(StoreFailed):
            await schemas.put_if_absent(ID, schema("one"), b"one")
    assert world.ledgers.ledgers == {}
    world.ledgers.appends_fail = False
    assert await schemas.put_if_absent(ID, schema("one"), b"one") == 0
