"""Numbers for the names that brokers give to producers: none twice, among Pulsar's brokers too."""

from collections.abc import AsyncIterator

import pytest
from wire_peer import Wire, running_broker

from anabranch.broker import generated_names
from anabranch.broker.generated_names import COUNTER
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    store = await open_store("memory:", real_runtime())
    yield store
    await store.close()


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


async def test_numbers_of_earlier_builds_are_not_given_again(store: MetadataStore) -> None:
    await store.put(COUNTER, b"4")
    first = await generated_names.next_instance(store)
    assert first >= 4
    assert await generated_names.next_instance(store) > first


async def test_two_producers_have_two_names() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        assert await wire.producer(1) != await wire.producer(2)
