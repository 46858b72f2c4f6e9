"""The embedded store in a real process that is killed with SIGKILL while it writes."""

import asyncio
import signal
import sys
from pathlib import Path

from anabranch.metadata.embedded import EmbeddedStore
from anabranch.runtime.real import real_runtime

KILLS = 10
WRITER = """
import asyncio, sys
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.runtime.real import real_runtime

async def main():
    store = await EmbeddedStore.open(real_runtime(), sys.argv[1], snapshot_after_bytes=3000)
    node = await store.get("/n")
    number = int(node.value) if node else 0
    while True:
        number += 1
        await store.put("/n", b"%d" % number)
        print(number, flush=True)

asyncio.run(main())
"""


async def acknowledged_before_kill(folder: Path, lines: int) -> int:
    """Let a process write until it has told that many puts, kill it, return the last it told."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(folder), stdout=asyncio.subprocess.PIPE
    )
    told = b""
    try:
        assert writer.stdout is not None
        for _ in range(lines):
            told = await asyncio.wait_for(writer.stdout.readline(), 30) or told
    finally:
        writer.send_signal(signal.SIGKILL)
        rest, _ = await writer.communicate()
    # What was told between the last line read and the kill counts too; half a line does not.
    return int((told + rest).rpartition(b"\n")[0].rpartition(b"\n")[2])


async def test_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    for round_number in range(KILLS):
        told = await acknowledged_before_kill(tmp_path / "store", 5 + 17 * round_number % 60)
        store = await EmbeddedStore.open(real_runtime(), f"{tmp_path}/store")
        node = await store.get("/n")
        await store.close()
        assert node is not None
        assert int(node.value) in (told, told + 1)
