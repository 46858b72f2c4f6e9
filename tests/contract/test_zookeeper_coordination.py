"""Locks, elections, caches and counters on a real ZooKeeper: the same tests as on other stores."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import test_caches_on_stores
import test_counters_on_stores
import test_elections_on_stores
import test_locks_on_stores
from test_oxia_coordination import shared_with

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.coordination import Participant, Place, until
from anabranch.testing.servers import zookeeper
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
TIMEOUT_S = 4.0
_places = count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.servers


@pytest.fixture
async def place(servers: str) -> AsyncIterator[Place]:
    url = f"zk:{servers}/coordination/{next(_places)}"
    joined: list[Participant] = []

    async def join() -> Participant:
        store = await open_store(url, real_runtime(), session_timeout_s=TIMEOUT_S)
        joined.append(Participant(store))
        return joined[-1]

    async def kill(victim: MetadataStore) -> None:
        assert isinstance(victim, ZooKeeperStore)
        number = victim.session
        await end_session(victim)
        await until(lambda: victim.session_valid_until < 0 or victim.session != number)

    yield Place(join, kill, joined)
    for participant in joined:
        await participant.close()
        await participant.store.close()


@pytest.mark.goal("core.M10", part="zookeeper")
@pytest.mark.parametrize(
    "shared",
    shared_with(
        test_caches_on_stores,
        test_elections_on_stores,
        test_locks_on_stores,
    ),
)
async def test_on_zookeeper(shared, place: Place) -> None:
    await shared(place)
    assert (place.kinds, place.failures) == ({ZooKeeperStore}, [])


@pytest.mark.goal("core.M4", part="zookeeper")
@pytest.mark.parametrize("shared", shared_with(test_counters_on_stores))
async def test_counters_on_zookeeper(shared, place: Place) -> None:
    await shared(place)
    assert (place.kinds, place.failures) == ({ZooKeeperStore}, [])
