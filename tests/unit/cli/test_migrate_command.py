"""`anabranch migrate metadata` on a server whose metadata store others serve, from plan to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.metadata.served.client import ServedStore
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.server.web_server import web_servers, web_sockets
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
