"""`anabranch verify run` against our own server, left alone, interrupted and killed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import Standalone, anabranch_standalone
from anabranch.verify.history import SUFFIX, HistoryFolder, HistoryTail
from anabranch.verify.records import Delivery, End

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone() as running:
        yield running


def begin(server: Standalone, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "anabranch", "verify", "run", "--url", server.service_url]
    command += ["--history", str(folder), "--output", "json", "--rate", "200", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_deliveries(folder: Path) -> None:
    path = folder / f"consumer-0-exclusive-0{SUFFIX}"
    for _ in range(600):
        if path.exists() and any(isinstance(r, Delivery) for _, r in HistoryTail(path).poll()):
            return
        time.sleep(0.1)
    raise AssertionError("nothing was delivered in 60 s")


def ended(folder: Path) -> bool:
    histories = HistoryFolder(folder)
    files = [located.file for located in histories.merged() if isinstance(located.record, End)]
    return len(files) == len(histories.paths)


def test_run_left_alone_is_clean(server: Standalone, tmp_path: Path) -> None:
    run = begin(server, tmp_path / "history", "--duration", "3", "--seed", "5")
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 0, stdout + stderr
    assert "seed 5" in stderr
    verdict = json.loads(stdout)
    assert verdict["counts"]["acknowledged"] > 100
    assert verdict["counts"]["unfinished_histories"] == 0


@pytest.mark.parametrize("client", ["pypi", "sdk"])
def test_every_rule_has_something_to_judge(server: Standalone, tmp_path: Path, client: str) -> None:
    run = begin(server, tmp_path / "history", "--duration", "4", "--client", client)
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 0, stdout + stderr
    verdict = json.loads(stdout)
    idle = {rule["id"] for rule in verdict["rules"] if not rule["checked"]}
    # The stock library waits for no answer to an acknowledgement and asks for no cursor.
    assert idle == (set() if client == "sdk" else {"C5", "C11"})
    assert verdict["counts"]["failed"] > 0


def test_interrupted_run_still_drains_and_judges(server: Standalone, tmp_path: Path) -> None:
    run = begin(server, tmp_path / "history", "--duration", "3600")
    wait_for_deliveries(tmp_path / "history")
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 0, stdout + stderr
    assert json.loads(stdout)["status"] == "clean"
    assert ended(tmp_path / "history")


def test_clients_close_their_histories_when_the_coordinator_is_killed(
    server: Standalone, tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    run = begin(server, folder, "--duration", "3600")
    wait_for_deliveries(folder)
    run.kill()
    run.communicate()
    for _ in range(600):
        unfinished = HistoryFolder(folder)
        files = {loc.file for loc in unfinished.merged() if isinstance(loc.record, End)}
        if len(files) == len(unfinished.paths) - 1:
            break
        time.sleep(0.1)
    names = [path.name for index, path in enumerate(unfinished.paths) if index not in files]
    assert names == [f"coordinator{SUFFIX}"]
    command = [sys.executable, "-m", "anabranch", "verify", "check", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2, "without a drain nobody knows whether something was lost"
    assert "was not drained" in result.stdout
