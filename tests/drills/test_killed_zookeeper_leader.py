"""ZooKeeper's leader killed again and again under load: the drill in small."""

import pytest

from anabranch.testing.servers import zookeeper
from anabranch.testing.zookeeper_drill import ZooKeeperDrill

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


async def test_killed_leaders_lose_nothing() -> None:
    with zookeeper(3, memory=("-Xmx256m",)) as ensemble:
        drill = ZooKeeperDrill(ensemble, kills=2, seed=7)
        found = await drill.run()
    assert found.wrong == []
    assert found.acknowledged > 100
    assert found.locks > 5
    assert found.guarded > 10
    assert (drill.verdict["status"], drill.verdict["kills"]) == ("clean", 2)
