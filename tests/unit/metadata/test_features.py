"""Feature levels: written once, checked on every start."""

import pytest

from anabranch.errors import FormatError
from anabranch.metadata.factory import open_store
from anabranch.metadata.features import (
    FEATURES_PATH,
    THIS_BUILD,
    LevelRange,
    check_features,
    decode_features,
    encode_features,
)
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime


@pytest.fixture
async def store() -> MetadataStore:
    return await open_store("memory:", real_runtime())


async def test_first_start_finalizes_the_highest_levels(store: MetadataStore) -> None:
    levels = await check_features(store, {"a": LevelRange(1, 3), "b": LevelRange(0, 2)})
    assert levels == {"a": 3, "b": 2}
    node = await store.get(FEATURES_PATH)
    assert node is not None
    assert node.value == b'{\n "format": 1,\n "features": {\n  "a": 3,\n  "b": 2\n }\n}'


async def test_later_start_changes_nothing(store: MetadataStore) -> None:
    await check_features(store)
    before = await store.revision()
    await check_features(store)
    assert await store.revision() == before


@pytest.mark.parametrize(
    ("levels", "named"),
    [
        ({"a": 4}, "a is at 4, this build knows 1 to 3"),
        ({"a": 0}, "a is at 0, this build knows 1 to 3"),
        ({}, "a is at 0, this build knows 1 to 3"),
        ({"a": 2, "new": 1}, "new is at 1, this build knows 0 to 0"),
    ],
)
async def test_level_out_of_range_refuses_to_start(
    store: MetadataStore, levels: dict[str, int], named: str
) -> None:
    await store.put(FEATURES_PATH, encode_features(levels))
    before = await store.revision()
    with pytest.raises(FormatError, match=named):
        await check_features(store, {"a": LevelRange(1, 3)})
    assert await store.revision() == before


async def test_older_level_in_range_is_kept(store: MetadataStore) -> None:
    await store.put(FEATURES_PATH, encode_features({"a": 2}))
    assert await check_features(store, {"a": LevelRange(1, 3)}) == {"a": 2}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "format None"),
        (b'{"format": 2, "features": {}}', "format 2"),
        (b'{"format": 1}', "no level"),
        (b'{"format": 1, "features": {"a": "1"}}', "no level"),
        (b'{"format": 1, "features": {"a": true}}', "no level"),
    ],
)
def test_unknown_document_is_refused_and_named(value: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        decode_features(value)


def test_this_build_accepts_what_it_finalizes() -> None:
    levels = {feature: known.highest for feature, known in THIS_BUILD.items()}
    assert decode_features(encode_features(levels)) == levels
    assert all(known.lowest <= known.highest for known in THIS_BUILD.values())
