"""A process that appends to the embedded ledger store is killed with SIGKILL, again and again."""

import subprocess
from pathlib import Path

import pytest

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledgers import ids_of, payloads_of
from anabranch.testing.ledger_writer import payload_of
from anabranch.testing.planted import child_command

KILLS = 10


def run_and_kill(folder: Path, ledger_id: int, answers: int) -> int:
    """How many entries were acknowledged before the kill."""
    child = subprocess.Popen(
        child_command("anabranch.testing.ledger_writer", str(folder), str(ledger_id)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        lines = [child.stdout.readline() for _ in range(answers)]
    finally:
        child.kill()
        rest, _ = child.communicate()
    whole = [line for line in [*lines, *rest.splitlines(keepends=True)] if line.endswith("\n")]
    acknowledged = [line.split() for line in whole]
    assert acknowledged == [[str(number), "None"] for number in range(len(whole))]
    return len(acknowledged)


@pytest.mark.goal("core.L2", part="embedded", broken_by="acknowledged_before_written")
async def test_acknowledged_entries_survive_sigkill(tmp_path: Path) -> None:
    disk = RealDisk()
    acknowledged: list[int] = []
    recovered: dict[int, int] = {}
    for ledger_id in range(KILLS):
        acknowledged.append(run_and_kill(tmp_path / "ledgers", ledger_id, 50 + 97 * ledger_id))
        store = await EmbeddedLedgerStore.open_folder(disk, str(tmp_path / "ledgers"))
        assert await ids_of(store) == list(range(ledger_id + 1))
        for number, promised in enumerate(acknowledged):
            found = await payloads_of(await store.open(number))
            assert found == [payload_of(entry) for entry in range(len(found))]
            assert len(found) >= promised
            assert recovered.setdefault(number, len(found)) == len(found)
        await store.close()
    disk.close()
