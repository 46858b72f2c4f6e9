"""Our clients of ZooKeeper and Oxia beside bare loops over the same protocol and server.

A pair is one run of each side, one after the other. Other work on the machine can only make a side
slower, so that each operation is judged by the best of a few pairs.
"""

from collections.abc import Awaitable, Callable

import pytest

from anabranch.testing.servers.zookeeper import zookeeper
from benchmarks import metadata_oxia, metadata_zookeeper
from benchmarks.metadata_rates import MEASURES
from benchmarks.report import Report, SideRun

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
PAIRS_MAX = 4
TIMES_SLOWER_MAX = 2.0


async def check_beside_a_bare_loop(run_side: Callable[[str], Awaitable[SideRun]]) -> None:
    report = Report("speed", MEASURES, ("anabranch", "raw"), {})
    await run_side("anabranch")  # servers are slow at first
    for _ in range(PAIRS_MAX):
        report.runs += [await run_side("anabranch"), await run_side("raw")]
        slower = {}
        for measure in MEASURES:
            ratios = report.ratios(measure.key)
            slower[measure.title] = 1 / max(ratios) if measure.higher_is_better else min(ratios)
        if max(slower.values()) <= TIMES_SLOWER_MAX:
            return
    assert max(slower.values()) <= TIMES_SLOWER_MAX, f"{slower}\n{report.table()}"


@pytest.mark.goal("core.M12", part="zookeeper")
async def test_zookeeper_takes_at_most_twice_as_long_as_a_bare_loop() -> None:
    with zookeeper(memory=("-Xmx1g",)) as server:
        (port,) = server.ports
        await check_beside_a_bare_loop(lambda name: metadata_zookeeper.run_side(name, port))


@pytest.mark.goal("core.M12", part="oxia")
async def test_oxia_takes_at_most_twice_as_long_as_a_bare_loop() -> None:
    await check_beside_a_bare_loop(metadata_oxia.run_side)
