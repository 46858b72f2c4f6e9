"""Our server under load, killed without warning: nothing acknowledged is lost.

The same drill on a server that forgets everything must end in violations, or it proves nothing.
"""

from pathlib import Path

import pytest

from anabranch.testing.crash_drill import CrashDrill, DrillSettings
from anabranch.testing.made_histories import broken_rules
from anabranch.testing.planted import child_command
from anabranch.verify.workload import ClientKind

pytestmark = pytest.mark.timeout(400)

PLACE = ("--port", "{port}", "--web-port", "{web_port}", "--data", "{data}")
SLOWNESS = {"C14"}
"""How fast a server serves again depends on what else the machine does."""


def server() -> tuple[str, ...]:
    return tuple(child_command("anabranch", "standalone", *PLACE))


@pytest.mark.goal("check.C1", part="kill -9", broken_by="unproven_tail_is_cut")
async def test_ten_kills_break_no_promise(tmp_path: Path) -> None:
    settings = DrillSettings(command=server(), kills=10, seed=20, rate=200.0)
    verdict = await CrashDrill(settings, tmp_path).run()
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 1000
    assert verdict.counts["redeliveries"] > 0, "no kill hit anything in flight"


@pytest.mark.goal("check.C8", part="kill -9", broken_by="divergence_is_only_counted")
async def test_server_that_forgets_everything_is_caught(tmp_path: Path) -> None:
    forget = ("sh", "-c", 'rm -rf "$0"/* && exec "$@"', "{data}")
    settings = DrillSettings(command=(*forget, *server()), kills=1, seed=21, rate=200.0)
    verdict = await CrashDrill(settings, tmp_path).run()
    assert "C8" in broken_rules(verdict), verdict.as_text()


@pytest.mark.goal("check.C5", part="kill -9", broken_by="ack_answered_before_durable")
async def test_kills_undo_no_confirmed_acknowledgement(tmp_path: Path) -> None:
    settings = DrillSettings(command=server(), kills=4, seed=22, rate=200.0, client=ClientKind.SDK)
    verdict = await CrashDrill(settings, tmp_path).run()
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    checked = {rule.id: rule.checked for rule in verdict.rules}
    assert checked["C5"] > 500
    assert checked["C3"] > 0
    assert checked["C11"] > 10
    assert verdict.counts["confirmed_acks"] > 500
