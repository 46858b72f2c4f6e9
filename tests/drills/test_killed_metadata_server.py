"""`anabranch metadata serve` under load, killed without warning: nothing acknowledged is lost.

With the same drill on a server that answers before its log is written, something must be missing.
"""

from pathlib import Path

import pytest

from anabranch.testing.metadata_drill import MetadataDrill

pytestmark = pytest.mark.timeout(400)


@pytest.mark.goal("core.M9", part="kill -9", broken_by="acknowledged_before_written")
@pytest.mark.goal("core.M3", part="kill -9", broken_by="session_never_runs_out")
def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    verdict = MetadataDrill(tmp_path, kills=10, seed=11).run()
    assert verdict.violations == []
    assert verdict.kills == 10
    assert verdict.acknowledged > 500
    assert verdict.drawn > 50
