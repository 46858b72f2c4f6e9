"""A target behind a line of 64 kbit/s: progress is shown, and it is given up at the deadline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.switchable.succession import SUCCEEDS_PATH
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.testing.relay import Relay, relay_to
from anabranch.testing.staged_replacement import (
    LONG_S,
    SOURCE_URL,
    Stage,
    failed,
    hasty,
    staged,
)

BYTES_PER_S = 8_000.0
NODES = 300
NODE_BYTES = 500
WHOLE_S = NODES * NODE_BYTES / BYTES_PER_S
"""What the copy would take at least."""
COPY_S_MAX = 7.0
PAGE_NODES = 15
"""Written at once, and then counted: about one in a second."""
LOOK_S = 0.1


@asynccontextmanager
async def behind_a_relay(folder: Path) -> AsyncIterator[tuple[Relay, str]]:
    """A store that a server of ours keeps, and its URL by way of a relay."""
    runtime = real_runtime()
    store = await open_store(f"embedded:{folder}", runtime)
    assert isinstance(store, LocalHandle)
    server = MetadataServer(runtime, store, on_failure=failed)
    await server.start("127.0.0.1", 0)
    async with relay_to(server.port) as relay:
        yield relay, f"anabranch://127.0.0.1:{relay.port}"
    await server.close()
    await store.close()


async def shown(stage: Stage, phase: str) -> list[int]:
    """How many nodes were said to be copied, at each look until the phase is over."""
    found: list[int] = []
    async with asyncio.timeout(LONG_S):
        while True:
            status = (await stage.operation.status()).as_json()
            if status["phase"] != phase:
                return found
            progress = status["progress"]
            if progress is not None:
                assert progress["total"] is None or progress["total"] >= NODES
                found.append(progress["done"])
            await asyncio.sleep(LOOK_S)


@pytest.mark.goal("rel.A15", part="progress", broken_by="progress_is_not_shown")
@pytest.mark.goal("rel.A15", part="slow", broken_by="deadlines_do_not_count")
async def test_a_slow_target_shows_how_far_it_is_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METADATA_PAGE_NODES_MAX", PAGE_NODES)
    assert WHOLE_S > 2 * COPY_S_MAX
    table = hasty(TABLE.holding_for(LONG_S), "copying", COPY_S_MAX)
    async with behind_a_relay(tmp_path) as (relay, target), staged("ash", table=table) as stage:
        store = stage.anybody.store
        for number in range(NODES):
            await store.put(f"/filled/{number:03d}", b"%d" % number * (NODE_BYTES // 3))
        await stage.reach("copying", target)
        relay.bytes_per_s = BYTES_PER_S
        stage.go_on()
        copied = await shown(stage, "copying")
        assert copied == sorted(copied)
        assert len({count for count in copied if 0 < count < NODES}) >= 3, copied
        await store.put("/written/meanwhile", b"")
        state = await stage.until("failed", wait_s=LONG_S)
        assert state.error.startswith(f"copying took longer than {COPY_S_MAX} s"), state.error
        relay.bytes_per_s = 0.0
        await stage.all_on("source")
        source = await stage.open_store(SOURCE_URL)
        assert await source.exists("/written/meanwhile")
        assert len(await source.children("/filled")) == NODES
        await source.close()
        direct = await open_store(target, stage.runtime)
        assert len(await direct.children("/filled")) < NODES
        assert not await direct.exists(SUCCEEDS_PATH)
        await direct.close()
