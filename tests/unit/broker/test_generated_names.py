"""Numbers for the names that brokers give to producers: none twice, among Pulsar's brokers too."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from wire_peer import Wire, running_broker

from anabranch.broker import generated_names
from anabranch.broker.generated_names import COUNTER
from anabranch.errors import FormatError, Unreachable
from anabranch.metadata.counters import Numbering
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Stat
from anabranch.runtime.real import real_runtime


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    store = await open_store("memory:", real_runtime())
    yield store
    await store.close()


async def number_on_oxia(store: MetadataStore) -> int:
    """What a broker of Pulsar does whose metadata are on Oxia: it takes the count of changes."""
    return (await store.put(COUNTER, b"")).version.native


async def number_of_pulsar(store: MetadataStore) -> int:
    """What a broker of Pulsar does."""
    stat = await store.put(f"{COUNTER}/-", b"", ephemeral=True, sequential=True)
    return int(stat.path.rpartition("-")[2])


@pytest.mark.goal(
    "core.L8", part="no producer name twice", broken_by="names_are_counted_beside_pulsar"
)
async def test_our_brokers_and_pulsars_count_together(store: MetadataStore) -> None:
    taken = [await generated_names.next_instance(store)]
    taken += [await number_of_pulsar(store), await number_of_pulsar(store)]
    taken += [await generated_names.next_instance(store), await number_of_pulsar(store)]
    assert sorted(set(taken)) == taken


@pytest.mark.goal(
    "core.L8", part="no producer name twice", broken_by="names_are_counted_beside_pulsar"
)
async def test_our_brokers_and_pulsars_on_oxia_count_together(store: MetadataStore) -> None:
    ours = partial(generated_names.next_instance, store, Numbering.BY_CHANGES)
    taken = [await ours(), await number_on_oxia(store), await number_on_oxia(store)]
    taken += [await ours(), await number_on_oxia(store), await ours()]
    assert sorted(set(taken)) == taken
    assert not await store.children(COUNTER), "Pulsar makes its own below it"


async def test_a_count_that_cannot_be_read_is_refused_by_name(store: MetadataStore) -> None:
    await store.put(COUNTER, b"many")
    for numbering in Numbering:
        with pytest.raises(FormatError, match=r"/counters/producer-name .*b'many'"):
            await generated_names.next_instance(store, numbering)
    node = await store.get(COUNTER)
    assert node is not None
    assert node.value == b"many"


async def test_numbers_of_earlier_builds_are_not_given_again(store: MetadataStore) -> None:
    await store.put(COUNTER, b"4")
    first = await generated_names.next_instance(store)
    assert first >= 4
    assert await generated_names.next_instance(store) > first


@pytest.mark.goal(
    "core.L8", part="no producer name twice", broken_by="counting_erases_what_earlier_builds_gave"
)
async def test_numbers_of_earlier_builds_are_known_to_all_who_upgrade_on_oxia(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(COUNTER, b"9")
    real = store.put
    left = 3

    async def ends_soon(*words: Any, **named: Any) -> Stat:
        nonlocal left
        left -= 1
        if not left:
            raise Unreachable("this broker ends while it counts up")
        return await real(*words, **named)

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", ends_soon)
        with pytest.raises(Unreachable):
            await generated_names.next_instance(store, Numbering.BY_CHANGES)
    first = await generated_names.next_instance(store, Numbering.BY_CHANGES)
    assert first >= 9
    assert await generated_names.next_instance(store, Numbering.BY_CHANGES) > first


async def test_two_producers_have_two_names() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        assert await wire.producer(1) != await wire.producer(2)
