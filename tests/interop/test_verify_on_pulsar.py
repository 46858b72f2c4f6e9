"""The checker judges a real Pulsar: clean when left alone, nothing lost when killed."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.testing.made_histories import broken_rules
from anabranch.testing.servers import Standalone, pulsar_standalone
from anabranch.verify.check import check_folder
from anabranch.verify.records import (
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Event,
    SubscriptionType,
)
from anabranch.verify.workload import Workload, WorkloadSettings

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

SLOWNESS = {"C14"}
"""How fast Pulsar serves depends on what else the machine does; everything else is its promise."""


@pytest.mark.parametrize("subscriptions", ["exclusive,shared", "failover,key_shared"])
def test_run_against_pulsar_breaks_no_promise(tmp_path: Path, subscriptions: str) -> None:
    with pulsar_standalone() as server:
        options = ("--url", server.service_url, "--duration", "10", "--output", "json")
        options += ("--subscriptions", subscriptions)
        command = [sys.executable, "-m", "anabranch", "verify", "run", *options]
        command += ["--history", str(tmp_path / "history")]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    verdict = json.loads(result.stdout)
    broken = {rule["id"] for rule in verdict["rules"] if rule["violations"]}
    assert broken <= SLOWNESS, result.stdout + result.stderr
    assert result.returncode == len(broken)
    assert verdict["reasons"] == []
    assert verdict["counts"]["acknowledged"] > 500
    assert verdict["counts"]["deliveries"] >= 2 * verdict["counts"]["acknowledged"]
    checked = {rule["id"]: rule["checked"] for rule in verdict["rules"]}
    assert all(checked[rule] > 500 for rule in ("C1", "C2", "C4", "C6", "C7", "C8"))


def test_kill_of_pulsar_loses_nothing(tmp_path: Path) -> None:
    settings = WorkloadSettings(
        url="pulsar://",
        topic="persistent://public/default/killed",
        run="0123456789abcdef",
        seed=11,
        rate=200.0,
        subscriptions=(SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED),
    )
    with pulsar_standalone() as server:
        asyncio.run(run_with_kill(server, settings, tmp_path / "history"))
    verdict = check_folder(tmp_path / "history")
    assert verdict.counts["acknowledged"] > 500
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert not verdict.reasons


async def run_with_kill(server: Standalone, settings: WorkloadSettings, folder: Path) -> None:
    workload = Workload(replace(settings, url=server.service_url), folder)
    try:
        await workload.start()
        await asyncio.sleep(3)
        workload.note(Event(WINDOW_OPENED, "kill"))
        workload.note(Event(SERVER_KILLED, "kill"))
        server.kill()
        server.start()
        workload.note(Event(WINDOW_CLOSED, "kill"))
        served = workload.progress.acknowledged
        for _ in range(600):
            if workload.progress.acknowledged > served + 300:
                break
            await asyncio.sleep(0.1)
        await workload.stop_sending()
        assert await workload.drain()
    finally:
        await workload.close()
    workload.raise_failure()
