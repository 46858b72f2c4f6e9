"""A process that appends to the embedded ledger store is killed with SIGKILL, again and again."""

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledgers import ids_of, payloads_of

WRITER = """
import asyncio, sys
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real_disk import RealDisk

async def main(folder, ledger_id):
    store = await EmbeddedLedgerStore.open_folder(RealDisk(), folder, segment_bytes=200_000)
    writer = await store.create(ledger_id)
    number = 0
    while True:
        for _ in range(20):
            writer.append(b"%d" % number * 100, lambda entry_id, error: print(entry_id, error))
            number += 1
        sys.stdout.flush()
        await asyncio.sleep(0)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
KILLS = 10


def run_and_kill(folder: Path, ledger_id: int, answers: int) -> int:
    """How many entries were acknowledged before the kill."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(ledger_id)],
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


@pytest.mark.goal("core.L2", part="embedded")
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
            assert found == [b"%d" % entry * 100 for entry in range(len(found))]
            assert len(found) >= promised
            assert recovered.setdefault(number, len(found)) == len(found)
        await store.close()
    disk.close()
