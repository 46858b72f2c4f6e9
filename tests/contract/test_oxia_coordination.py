"""Locks, elections, caches and counters on a real Oxia: the same tests as on other stores."""

from collections.abc import AsyncIterator, Iterator
from inspect import iscoroutinefunction, signature
from types import ModuleType

import pytest
import pytest_asyncio
import test_caches_on_stores
import test_counters_on_stores
import test_elections_on_stores
import test_locks_on_stores
from test_oxia_metadata_contract import wipe

from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.coordination import Participant, Place, until
from anabranch.testing.servers.oxia import Oxia, oxia

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]
TIMEOUT_S = 3.0


def shared_with(*modules: ModuleType) -> list[object]:
    """Every test of these modules that needs a place and nothing else."""
    return [
        pytest.param(function, id=name)
        for module in modules
        for name, function in vars(module).items()
        if name.startswith("test_")
        and iscoroutinefunction(function)
        and list(signature(function).parameters) == ["place"]
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[Oxia]:
    with oxia(3) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def place(server: Oxia) -> AsyncIterator[Place]:
    await wipe(server)
    joined: list[Participant] = []

    async def connect() -> MetadataStore:
        return await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)

    watcher = await connect()

    async def join() -> Participant:
        joined.append(Participant(await connect()))
        return joined[-1]

    async def kill(victim: MetadataStore) -> None:
        number = victim.session
        await watcher.end_session(number)  # type: ignore[attr-defined]
        await until(lambda: victim.session_valid_until < 0 or victim.session != number)

    yield Place(join, kill, joined)
    for participant in joined:
        await participant.close()
        await participant.store.close()
    await watcher.close()


@pytest.mark.goal("core.M10", part="oxia")
@pytest.mark.parametrize(
    "shared",
    shared_with(
        test_caches_on_stores,
        test_elections_on_stores,
        test_locks_on_stores,
    ),
)
async def test_on_oxia(shared, place: Place) -> None:
    await shared(place)
    assert (place.kinds, place.failures) == ({OxiaStore}, [])


@pytest.mark.goal("core.M4", part="oxia")
@pytest.mark.parametrize("shared", shared_with(test_counters_on_stores))
async def test_counters_on_oxia(shared, place: Place) -> None:
    await shared(place)
    assert (place.kinds, place.failures) == ({OxiaStore}, [])
