"""The assembled server in one process: what its web interface says about it, and how it ends."""

import asyncio
import json
from dataclasses import replace

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError, ConfigError, FormatError, StorageError, StoreFailed
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.failing_disk import FailingDisk
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")


@pytest.fixture
async def server():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()
    yield server
    await server.close()


def on_disk(folder) -> Settings:
    return Settings(port=0, web_port=0, data=str(folder))


async def status_of(server: Standalone, page: str) -> tuple[int, str]:
    answer = await call(server.web_app, f"/admin/v2/brokers/{page}")
    body = answer.body.decode()
    return answer.status, body if answer.status == 200 else json.loads(body)["reason"]


@pytest.mark.goal("core.B20", part="health", broken_by="ready_while_it_stops")
async def test_ready_between_start_and_stop():
    server = Standalone(real_runtime(), IN_MEMORY)
    assert await status_of(server, "health") == (503, "the server is starting")
    assert (await call(server.web_app, "/metrics")).status == 200
    await server.start()
    assert await status_of(server, "ready") == (200, "ok")
    assert await status_of(server, "health") == (200, "ok")
    await server.close()
    assert await status_of(server, "ready") == (503, "the server is stopping")
    assert await status_of(server, "health") == (503, "the server is stopping")


async def test_addresses_carry_the_ports_in_use(server):
    address = json.loads(
        (await call(server.web_app, "/lookup/v2/topic/persistent/public/default/t")).body
    )
    assert address["brokerUrl"] == server.service_url
    assert address["httpUrl"] == "http://127.0.0.1:1234"
    assert not server.service_url.endswith(":0")


async def test_namespace_that_does_not_exist_is_not_found(server):
    answer = await call(server.web_app, "/lookup/v2/topic/persistent/no/where/t")
    assert answer.status == 404
    assert json.loads(answer.body) == {"reason": "namespace no/where does not exist"}


async def test_topic_without_partitions_has_none(server):
    page = "/admin/v2/persistent/public/default/t/partitions"
    answer = await call(server.web_app, f"{page}?checkAllowAutoCreation=true")
    assert json.loads(answer.body)["partitions"] == 0
    assert (await call(server.web_app, page)).status == 404


@pytest.mark.goal("core.B20", part="metrics", broken_by="metrics_have_other_names")
async def test_metrics_have_pulsars_names(server):
    page = (await call(server.web_app, "/metrics")).body.decode()
    for name in (
        "pulsar_active_connections",
        "pulsar_broker_topics_count",
        "pulsar_broker_producers_count",
        "pulsar_broker_consumers_count",
    ):
        assert f'{name}{{cluster="standalone"}} 0' in page


async def test_port_in_use_names_the_flag_and_lets_everything_go(server, tmp_path):
    port = int(server.service_url.rpartition(":")[2])
    second = Standalone(real_runtime(), replace(on_disk(tmp_path / "data"), port=port))
    with pytest.raises(ConfigError, match=rf"port {port} .* in use.*--port"):
        await second.start()
    assert not (tmp_path / "data").exists()


async def test_failed_start_gives_port_and_folders_back(tmp_path):
    data, ledgers = tmp_path / "data", tmp_path / "ledgers"
    ledgers.mkdir()
    (ledgers / "thesis.tex").touch()
    wrong = replace(on_disk(data), ledgers_url=f"embedded:{ledgers}")
    with pytest.raises(FormatError, match=r"thesis\.tex"):
        await Standalone(real_runtime(), wrong).start()
    right = Standalone(real_runtime(), on_disk(data))
    await right.start()
    await right.close()


async def test_data_outlives_the_server(tmp_path):
    for _ in range(2):
        server = Standalone(real_runtime(), on_disk(tmp_path))
        await server.start()
        assert await status_of(server, "health") == (200, "ok")
        await server.close()


@pytest.mark.goal("core.B20", part="health", broken_by="failed_stores_are_not_watched")
@pytest.mark.parametrize("store", ["metadata", "ledgers"])
async def test_failed_store_is_unhealthy_and_ends_the_server(tmp_path, store):
    disk = FailingDisk()
    server = Standalone(replace(real_runtime(), disk=disk), on_disk(tmp_path))
    await server.start()
    stop = asyncio.Event()
    serving = asyncio.ensure_future(server.serve_until(stop))
    disk.verdict = lambda path, _: OSError(5, "disk on fire") if f"/{store}/" in path else None
    if store == "ledgers":
        writer = await _failing_ledger(server)
        assert isinstance(writer, AnabranchError)
    status, reason = await status_of(server, "health")
    assert status == 503
    assert "disk on fire" in reason
    failure = await asyncio.wait_for(serving, 10 * limits.STORE_WATCH_INTERVAL_S)
    assert isinstance(failure, StoreFailed)
    assert "disk on fire" in str(failure)
    assert (await status_of(server, "ready"))[0] == 503
    await server.close()


async def test_a_ledger_store_that_cannot_tidy_up_is_degraded(tmp_path):
    server = Standalone(real_runtime(), on_disk(tmp_path))
    await server.start()
    assert "\nanabranch_ledger_store_degraded 0\n" in await _metrics(server)
    store = await server._stores.ledgers.store("main")
    store._upkeep._fail(StorageError("no second disk"))
    answer = await call(server.web_app, "/admin/v2/brokers/health")
    assert (answer.status, answer.body) == (200, b"ok")
    assert "no second disk" in answer.headers["x-anabranch-degraded"]
    assert "\nanabranch_ledger_store_degraded 1\n" in await _metrics(server)
    await server.close()


async def _metrics(server: Standalone) -> str:
    return (await call(server.web_app, "/metrics")).body.decode()


async def _failing_ledger(server: Standalone) -> BaseException | None:
    try:
        await (await server._stores.ledgers.store("main")).create(999_999)
    except AnabranchError as error:
        return error
    return None


@pytest.mark.goal("core.B20", part="health", broken_by="health_tries_nothing")
async def test_store_that_hangs_is_unhealthy(server, monkeypatch):
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(limits, "HEALTH_CHECK_S_MAX", 0.05)
    monkeypatch.setattr(server._stores.metadata, "put", hang)
    status, reason = await status_of(server, "health")
    assert (status, reason) == (503, "the metadata store took no write within 0.05 s")


async def test_stop_is_no_failure(server):
    stop = asyncio.Event()
    stop.set()
    assert await server.serve_until(stop) is None


async def test_background_task_that_breaks_ends_the_server(server):
    async def breaks() -> None:
        raise ZeroDivisionError

    serving = asyncio.ensure_future(server.serve_until(asyncio.Event()))
    server._tasks.spawn("juggler", breaks())
    assert isinstance(await serving, ZeroDivisionError)
    assert (await status_of(server, "ready"))[0] == 503
