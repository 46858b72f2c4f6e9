"""The figures of topics have Pulsar's names; dashboard and alerts name none that is not there."""

import json
import re
from pathlib import Path

import pytest

from anabranch.client import Client
from anabranch.metadata.announced import Announced
from anabranch.migrations.engine.progress import Shown
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.steps import Progress
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.process_metrics import process_metrics
from anabranch.server.settings import Settings
from anabranch.telemetry.loop_lag import CollectorPauses, LoopLag
from anabranch.testing.web_call import call

DEPLOY = Path(__file__).parents[3] / "deploy"
LABELS = 'cluster="standalone",namespace="public/default"'
ORDERS = f'{LABELS},topic="persistent://public/default/orders"'
BILLING = f'{ORDERS},subscription="billing"'
SIZES = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb", "overflow")
LATENCIES = (
    *("le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000"),
    "overflow",
)
UNDER_WAY = Status(
    "metadata",
    TABLE,
    State(Announced("a", 1, 1, "copying")),
    (),
    Shown("a", 1, "copying", Progress()),
)
"""A replacement of the metadata store, which has figures only after it was started."""
NAME = re.compile(r"\b(?:pulsar|anabranch|process)_[a-z_]+")


async def page_of(each_topic: bool, *, large: int = 0) -> str:
    """Publish five messages, one large if asked for, acknowledge two; what is shown then."""
    runtime = real_runtime()
    sources = (LoopLag(runtime.clock).metrics, CollectorPauses(runtime.clock).metrics)
    server = Standalone(
        runtime,
        Settings(
            port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:",
            topic_metrics=each_topic,
        ),
        metric_sources=(*sources, process_metrics),
    )  # fmt: skip
    await server.start()
    try:
        async with await Client.connect(server.service_url) as client:
            consumer = await client.consumer("orders", "billing")
            producer = await client.producer("orders", batching=None)
            for number in range(5):
                await producer.send(b"order %d" % number)
            if large:
                await producer.send(b"x" * large)
            for _ in range(2):
                await consumer.acknowledge(await consumer.receive())
            await consumer.close()
            await server.broker.rates.measure(server.broker.topics.all())
            return (await call(server.web_app, "/metrics")).body.decode()
    finally:
        await server.close()


@pytest.mark.goal("core.B20", part="metrics", broken_by="topics_are_added_up")
async def test_topics_and_subscriptions_have_figures_of_their_own() -> None:
    page = await page_of(each_topic=True)
    for line in (
        f"pulsar_in_messages_total{{{ORDERS}}} 5",
        f"pulsar_producers_count{{{ORDERS}}} 1",
        f"pulsar_subscriptions_count{{{ORDERS}}} 1",
        f"pulsar_msg_backlog{{{ORDERS}}} 3",
        f"pulsar_subscription_back_log{{{BILLING}}} 3",
        f"pulsar_subscription_consumers_count{{{BILLING}}} 0",
        f"pulsar_subscription_unacked_messages{{{BILLING}}} 0",
        f"pulsar_subscription_back_log_no_delayed{{{BILLING}}} 3",
        f"pulsar_storage_backlog_quota_limit{{{ORDERS}}} -1",
        f"pulsar_storage_offloaded_size{{{ORDERS}}} 0",
        f"pulsar_topics_count{{{LABELS}}} 1",
    ):
        assert line in page.splitlines()
    last = re.search(r"^pulsar_subscription_last_acked_timestamp\{.*\} (\d+)", page, re.MULTILINE)
    assert last is not None
    assert int(last[1]) > 1_700_000_000_000
    assert re.search(r'^pulsar_version_info\{.*version="Anabranch', page, re.MULTILINE)
    assert len(re.findall("^# TYPE pulsar_in_messages_total ", page, re.MULTILINE)) == 1


@pytest.mark.goal("core.B20", part="metrics", broken_by="sizes_of_entries_are_not_counted")
async def test_entries_are_counted_by_their_size_and_the_time_they_took() -> None:
    page = await page_of(each_topic=True, large=3000)
    shown = {
        name: float(value)
        for name, value in re.findall(
            rf"^(\w+)\{{{re.escape(ORDERS)}\}} (\S+)$", page, re.MULTILINE
        )
    }
    sizes = {name: shown[f"pulsar_entry_size_le_{name}"] for name in SIZES}
    assert sizes == {**dict.fromkeys(SIZES, 0), "128": 5, "4_kb": 1}
    assert shown["pulsar_entry_size_count"] == 6
    assert 3000 < shown["pulsar_entry_size_sum"] < 4000
    waited = [shown[f"pulsar_storage_write_latency_{name}"] for name in LATENCIES]
    assert sum(waited) == shown["pulsar_storage_write_latency_count"] == 6
    assert shown["pulsar_storage_write_latency_sum"] > 0
    assert shown["pulsar_storage_write_rate"] > 0
    assert shown["pulsar_storage_read_rate"] == 0, "all of it was in the cache"


async def test_topics_of_a_namespace_can_be_added_up() -> None:
    page = await page_of(each_topic=False)
    assert f"pulsar_entry_size_le_128{{{LABELS}}} 5" in page.splitlines()
    assert f"pulsar_in_messages_total{{{LABELS}}} 5" in page.splitlines()
    assert "orders" not in page


@pytest.mark.goal("core.B20", part="metrics", broken_by="latency_is_never_sampled")
async def test_the_time_until_a_message_is_stored_is_sampled() -> None:
    page = await page_of(each_topic=True)
    assert "anabranch_publish_latency_seconds_count 5" in page.splitlines()
    assert 'anabranch_publish_latency_seconds_bucket{le="+Inf"} 5' in page.splitlines()
    assert "# TYPE anabranch_publish_latency_seconds histogram" in page.splitlines()


async def test_dashboard_and_alerts_name_figures_that_are_there() -> None:
    page = await page_of(each_topic=True)
    known = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line[0] != "#"}
    known |= {figure.name for figure in UNDER_WAY.metrics()}
    dashboard = json.loads((DEPLOY / "grafana" / "anabranch.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    asked += re.findall(r"^ +expr: (.*)$", alerts, re.MULTILINE)
    named = {name for expression in asked for name in NAME.findall(expression)}
    assert len(asked) > 20
    assert sorted(named - known) == []
