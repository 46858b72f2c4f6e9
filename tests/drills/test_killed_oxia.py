"""Oxia killed again and again under load: the drill in small."""

import pytest

from anabranch.testing.oxia_drill import OxiaDrill
from anabranch.testing.servers.oxia import oxia

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


async def test_killed_servers_lose_nothing() -> None:
    with oxia(3) as server:
        drill = OxiaDrill(server, kills=2, seed=7)
        found = await drill.run()
    assert found.wrong == []
    assert found.acknowledged >= 2 * 4 * 4 * 25, "before each kill all counters were written to"
    assert (drill.verdict["status"], drill.verdict["kills"]) == ("clean", 2)
