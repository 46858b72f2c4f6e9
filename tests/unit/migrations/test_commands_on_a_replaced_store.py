"""Commands that write to a store which is being replaced take no part: nothing is lost silently."""

import asyncio
import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.cli.metadata_places import EXIT_UNUSABLE, counted
from anabranch.errors import ConfigError, OutcomeUnknown, Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.testing.planted import child_command
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    ON_THE_WAY_BACK,
    SOURCE_URL,
    TARGET_URL,
    Stage,
    failed,
    staged,
)

REFUSED = (ConfigError, Unreachable)


async def command(store: MetadataStore, path: str) -> bool:
    """Write as a command does; returns whether it was told that it has written."""
    refused = ""
    try:
        async with counted(store, path):
            await store.put(path, b"by hand")
    except REFUSED as refusal:
        refused = str(refusal)
    if refused:
        assert "nothing was changed" in refused
        assert not await store.exists(path)
    return not refused


async def reach(stage: Stage, phase: str) -> None:
    if phase not in ON_THE_WAY_BACK:
        await stage.reach(phase)
        return
    await stage.switch()
    stage.hold(phase)
    await stage.ask(Verb.ROLLBACK)
    await stage.until_held()


@pytest.mark.goal("454.A36", part="tools", broken_by="commands_write_past_the_freeze")
@pytest.mark.parametrize("phase", [*BEFORE_SWITCH, "switched", *ON_THE_WAY_BACK])
async def test_a_command_writes_what_stays_or_is_refused_in_every_phase(phase: str) -> None:
    async with staged("ash", "birch") as stage:
        source, target = [await stage.shelf.open(url) for url in (SOURCE_URL, TARGET_URL)]
        await reach(stage, phase)
        done = await command(source, "/by/hand")
        assert done == (phase in BEFORE_SWITCH and not TABLE[phase].holds_writes)
        stays = phase not in ON_THE_WAY_BACK
        if phase != "preparing":  # before, it is nobody's: the attempt finds what is written there
            assert not await command(target, "/by/other")
        stage.go_on()
        await stage.until("switched" if stays else "rolled back")
        await stage.all_on("target" if stays else "source")
        assert await stage.anybody.store.exists("/by/hand") == done
        if stays:
            await stage.ask(Verb.FINALIZE)
            await stage.until("finalized")
            assert not await command(source, "/by/late"), "it was left for good"
            assert await command(target, "/by/new")
            assert await stage.anybody.store.exists("/by/new")
        await source.close()
        await target.close()


@pytest.mark.goal("454.A36", part="tools", broken_by="commands_believe_their_writes")
async def test_a_command_that_wrote_over_the_freeze_is_told_that_it_may_be_lost() -> None:
    async with staged("ash", "birch") as stage:
        source = await stage.shelf.open(SOURCE_URL)
        await stage.reach("verifying")

        async def write_slowly() -> None:
            async with counted(source, "/by/hand"):
                stage.go_on()
                await stage.until("switched")
                await source.put("/by/hand", b"")

        with pytest.raises(OutcomeUnknown, match=f"replaced by {TARGET_URL}"):
            await write_slowly()
        await source.close()


@pytest.mark.goal("454.A36", part="tools", broken_by="commands_write_past_the_freeze")
@pytest.mark.timeout(240)
async def test_the_process_of_a_command_says_which_store_is_in_use(tmp_path: Path) -> None:
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        base = await open_store(f"embedded:{tmp_path}", runtime)
        held.push_async_callback(base.close)
        assert isinstance(base, LocalHandle)
        server = MetadataServer(runtime, base, on_failure=failed)
        await server.start("127.0.0.1", 0)
        held.push_async_callback(server.close)
        url = f"anabranch://127.0.0.1:{server.port}"
        stage = Stage(runtime, TABLE.holding_for(120.0))
        held.push_async_callback(stage.close)
        await stage.join("ash", url)

        async def put(path: str) -> "subprocess.CompletedProcess[str]":
            words = ("metadata", "put", path, "--value", "x", "--url", url)
            environment = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
            return await asyncio.to_thread(
                subprocess.run, child_command("anabranch", *words),
                capture_output=True, text=True, env=environment, timeout=100, check=False,
            )  # fmt: skip

        assert (await put("/before")).returncode == 0
        await stage.switch()
        late = await put("/late")
        assert late.returncode == EXIT_UNUSABLE
        assert f"was left for {TARGET_URL}" in late.stderr
        assert not await base.exists("/late")
        assert await stage.anybody.store.exists("/before")
