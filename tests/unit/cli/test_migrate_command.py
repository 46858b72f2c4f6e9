"""`anabranch migrate metadata` on a server whose metadata store others serve, from plan to end."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import ConflictError
from anabranch.metadata.served.client import ServedStore
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.steps import Turn
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets
from anabranch.testing.planted import child_command
from anabranch.testing.staged_replacement import Hold
from anabranch.testing.web_call import call


class Bench:
    """A server on one of two metadata stores, and a terminal."""

    def __init__(self, server: Standalone, source: str, target: str) -> None:
        self.server = server
        self.web_url = server.web_url
        self.source = source
        self.target = target

    async def run(self, *words: str, exit_code: int = 0) -> str:
        """What a command prints; it runs in a thread, since it has a loop of its own."""
        arguments = [*words, "--web-url", self.web_url]
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert result.exit_code == exit_code, (words, result.output, result.exception)
        return result.output

    async def migrate(self, *words: str, exit_code: int = 0) -> str:
        return await self.run("migrate", "metadata", *words, exit_code=exit_code)

    async def terminal(self, *words: str) -> asyncio.subprocess.Process:
        """A command in a process of its own, which can be interrupted."""
        command = child_command(
            "anabranch", "migrate", "metadata", *words, "--web-url", self.web_url
        )
        return await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )

    async def switched(self) -> dict[str, Any]:
        """How the operation is once it rests."""
        await self.migrate("watch", "--interval-s", "0.1")
        found = json.loads(await self.migrate("status", "--output", "json"))
        assert (found["phase"], found["error"], found["number"]) == ("switched", "", 1)
        return dict(found)

    async def tenants(self, url: str) -> list[str]:
        """Those that a store has, asked past every server."""
        store = await ServedStore.open(real_runtime(), url)
        try:
            return await store.children("/admin/policies")
        finally:
            await store.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        urls = []
        for name in ("source", "target"):
            service = MetadataService(runtime, Settings(data=str(tmp_path / name), metadata_port=0))
            await service.start()
            held.push_async_callback(service.close)
            urls.append(service.url)
        settings = Settings(
            port=0,
            web_port=0,
            data=str(tmp_path / "unused"),
            metadata_url=urls[0],
            ledgers_url="memory:",
            metadata_migration_targets=f"zk:nowhere:1 {urls[1]}",
        )
        sockets = held.enter_context(web_sockets(settings))
        server = Standalone(runtime, settings, web_port=sockets.port)
        await server.start()
        held.push_async_callback(server.close)
        await held.enter_async_context(web_servers(server, sockets, runtime.network))
        yield Bench(server, *urls)


@pytest.mark.timeout(180)
async def test_a_store_is_replaced_from_the_terminal(bench: Bench) -> None:
    await bench.run("tenants", "create", "before")
    assert "never started" in await bench.migrate("status")
    figures = (await call(bench.server.web_app, "/metrics")).body.decode()
    assert 'anabranch_migration_phase{operation="metadata",phase="not started"} 1' in figures
    refused = await bench.migrate("start", "oxia://elsewhere:1/x", exit_code=1)
    assert "metadata_migration_targets" in refused
    assert "nodes" in await bench.migrate("plan", bench.target)
    risked = await bench.migrate("plan", bench.target, "--accept-foreign-risk")
    assert "accept_foreign_risk true" in risked
    assert "nodes" in await bench.migrate("start", bench.target, "--dry-run")
    assert "never started" in await bench.migrate("status")
    assert await bench.tenants(bench.target) == []

    assert "started attempt" in await bench.migrate("start", bench.target)
    await bench.migrate("watch", "--interval-s", "0.1")
    found = json.loads(await bench.migrate("status", "--output", "json"))
    assert (found["phase"], found["outward"]) == ("switched", "COMPLETED"), found["error"]
    assert [each["role"] for each in found["participants"]] == ["broker"]
    assert "switched takes" in await bench.migrate("abort", "--dry-run", exit_code=1)
    assert "only rollback or finalize" in await bench.migrate("abort", exit_code=1)
    await bench.run("tenants", "create", "between")
    assert {"before", "between"} <= set(await bench.tenants(bench.target))

    assert "would be finalized" in await bench.migrate("finalize", "--dry-run")
    assert "finalizing" in await bench.migrate("finalize", "--why", "all is well")
    await bench.migrate("watch", "--interval-s", "0.1")
    assert "metadata: finalized" in await bench.migrate("status")
    await bench.run("tenants", "create", "after")
    assert "after" in await bench.tenants(bench.target)
    assert "after" not in await bench.tenants(bench.source)


@pytest.mark.timeout(180)
async def test_who_watches_an_attempt_that_fails_is_told_by_the_exit_code(bench: Bench) -> None:
    replaceable = bench.server._stores.replaceable
    assert replaceable is not None
    plain = replaceable.steps.run

    async def failing(phase: str, turn: Turn) -> None:
        if phase == "copying":
            raise ConflictError("the target is somebody's")
        await plain(phase, turn)

    setattr(replaceable.steps, "run", failing)  # noqa: B010 - a method of one object
    await bench.migrate("watch", "--interval-s", "0.1")
    await bench.migrate("start", bench.target)
    said = await bench.migrate("watch", "--interval-s", "0.1", exit_code=1)
    assert "because   the target is somebody's" in said
    setattr(replaceable.steps, "run", plain)  # noqa: B010 - a method of one object
    await bench.migrate("start", bench.target)
    await bench.migrate("watch", "--interval-s", "0.1")


async def interrupted(terminal: asyncio.subprocess.Process) -> str:
    """What a command says to Ctrl-C, which ends it with the code that shells expect."""
    terminal.send_signal(signal.SIGINT)
    output, said = await terminal.communicate()
    assert (terminal.returncode, output) == (130, b""), said
    assert b"Traceback" not in said
    return said.decode()


@pytest.mark.timeout(180)
@pytest.mark.goal("rel.X6", part="ctrl-c", broken_by="ctrl_c_aborts_the_operation")
async def test_ctrl_c_ends_the_view_and_the_operation_goes_on(bench: Bench) -> None:
    replaceable = bench.server._stores.replaceable
    assert replaceable is not None
    hold = Hold()
    hold.take(replaceable.steps)
    hold.begin("copying")
    await bench.migrate("start", bench.target)
    await hold.reached()
    watching = await bench.terminal("watch", "--interval-s", "0.1")
    assert watching.stderr is not None
    assert b"metadata: copying" in await watching.stderr.readline()
    said = await interrupted(watching)
    assert "the operation goes on: `anabranch migrate metadata status`" in said
    hold.end()
    await bench.switched()


@pytest.mark.timeout(180)
@pytest.mark.goal("rel.X6", part="ctrl-c", broken_by="ctrl_c_aborts_the_operation")
@pytest.mark.parametrize("had_it", [False, True])
async def test_ctrl_c_while_it_is_started_says_that_it_is_not_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, had_it: bool
) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()
    plain = Operation.start

    async def slow(self: Operation, *given: Any) -> Any:
        found = await plain(self, *given) if had_it else None
        asked.set()
        await answered.wait()
        return found or await plain(self, *given)

    monkeypatch.setattr(Operation, "start", slow)
    starting = await bench.terminal("start", bench.target)
    await asked.wait()
    said = await interrupted(starting)
    assert "whether the server had it is not known" in said
    answered.set()
    if not had_it:
        # A server ends what nobody waits for, or comes to its end; both can be seen.
        await asyncio.sleep(0.5)
        if "never started" in await bench.migrate("status"):
            await bench.migrate("start", bench.target)
    found = await bench.switched()
    assert [line["what"] for line in found["trail"]].count("start") == 1
