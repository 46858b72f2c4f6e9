"""A store that each process would have for itself is refused as a target, and is not made."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call

PULSARS = "/admin/v2/metadata/migration/start"
OURS = "/admin/v2/anabranch/migrations/metadata"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Standalone]:
    """One whose configuration allows such targets."""
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        kept = Settings(data=str(tmp_path / "source"), metadata_port=0)
        service = MetadataService(runtime, kept)
        await service.start()
        held.push_async_callback(service.close)
        settings = Settings(
            port=0,
            web_port=0,
            data=str(tmp_path / "unused"),
            metadata_url=service.url,
            ledgers_url="memory:",
            metadata_migration_targets=f"memory: embedded:{tmp_path / 'target'}",
        )
        server = Standalone(runtime, settings, web_port=1)
        await server.start()
        held.push_async_callback(server.close)
        yield server


@pytest.mark.goal("454.A1", part="one process", broken_by="private_targets_are_taken")
@pytest.mark.parametrize("target", ["memory:", "embedded:{}/target"])
async def test_it_is_refused_and_nothing_is_made(
    server: Standalone, tmp_path: Path, target: str
) -> None:
    target = target.format(tmp_path)
    for path, body in (
        (f"{OURS}/plan", {"target": target}),
        (f"{OURS}/start", {"target": target}),
        (PULSARS, {"targetUrl": target}),
    ):
        sent = json.dumps(body).encode()
        answer = await call(server.web_app, path, method="POST", body=sent)
        reason = answer.body.decode()
        assert (answer.status, "a store of one process alone" in reason) == (400, True), reason
    status = json.loads((await call(server.web_app, OURS)).body)
    assert status["phase"] is None, "nothing was started"
    assert not (tmp_path / "target").exists(), "nor was anything made"
