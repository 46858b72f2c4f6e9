"""The client processes of a workload: started, told, ended, whatever the server does."""

import os
import socket
from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.testing.made_histories import (
    ORDERED,
    RUN,
    delivered,
    receipt,
    sent,
    subscribed,
    write_history,
)
from anabranch.verify.history import HistoryFolder
from anabranch.verify.records import CONSUMER_CONNECTION_LOST, End, Event, SubscriptionType
from anabranch.verify.workload import Workload, WorkloadSettings, _Drain
from anabranch.verify.workload_process import ClientFailed, ClientProcess


def settings(url: str, **changes: object) -> WorkloadSettings:
    return WorkloadSettings(url=url, topic="t", run=RUN, seed=1, connect_s=1.0, **changes)  # type: ignore[arg-type]


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"pulsar://127.0.0.1:{probe.getsockname()[1]}"


async def test_unreachable_server_is_named_and_nothing_is_left_running(
    tmp_path: Path, dead_url: str
) -> None:
    workload = Workload(settings(dead_url), tmp_path / "history")
    with pytest.raises(ClientFailed, match=rf"cannot connect to {dead_url}"):
        await workload.start()
    await workload.close()
    await workload.close()
    for client in workload._consumers:
        with pytest.raises(ProcessLookupError):
            os.kill(client._process.pid, 0)
    histories = HistoryFolder(tmp_path / "history")
    ended = [located.file for located in histories.merged() if isinstance(located.record, End)]
    assert sorted(ended) == list(range(len(histories.paths))), "every history is closed"


async def test_client_that_dies_is_reported_with_its_last_words(
    tmp_path: Path, dead_url: str
) -> None:
    task = {"name": "c", "role": "consumer", "url": dead_url}
    client = await ClientProcess.start("c", task, tmp_path / "err")
    with pytest.raises(ClientFailed, match="client c ended with code 1"):
        await client.listen()
    await client.wait_ready()
    assert await client.wait_ended(1.0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"subscriptions": ()}, "at least one subscription"),
        ({"producers": 0}, "producers must be above 0"),
        ({"rate": -1.0}, "rate must be above 0"),
        ({"idle_s": 0.0}, "idle_s must be above 0"),
    ],
)
def test_wrong_setting_is_named(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Workload(settings("pulsar://x", **changes), tmp_path)


def test_subscriptions_are_spread_over_consumers(tmp_path: Path) -> None:
    workload = Workload(settings("pulsar://x", subscriptions=tuple(SubscriptionType)), tmp_path)
    tasks = workload._consumer_tasks()
    found = [(task["type"], task["ack"]) for task in tasks]
    assert found == [
        ("exclusive", "cumulative"),
        ("shared", "individual"),
        ("shared", "individual"),
        ("failover", "cumulative"),
        ("failover", "cumulative"),
        ("key_shared", "individual"),
        ("key_shared", "individual"),
    ]
    assert len({task["name"] for task in tasks}) == len(tasks)


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.KEY_SHARED])
def test_producers_differ_and_batch_only_where_order_allows(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    changes = {"subscriptions": (kind,), "producers": 5}
    profiles = [
        task["profile"]
        for task in Workload(settings("pulsar://x", **changes), tmp_path)._producer_tasks()
    ]
    assert {profile["compression"] for profile in profiles} == {"NONE", "LZ4", "ZSTD"}
    assert {profile["sync"] for profile in profiles} == {False, True}
    assert any(profile["batching"] for profile in profiles) is (kind is SubscriptionType.EXCLUSIVE)
    assert profiles[4] == profiles[0]


def test_drain_knows_what_is_missing_and_whether_to_wait(tmp_path: Path) -> None:
    write_history(tmp_path, "a-producer", [sent(1), receipt(1), sent(2), receipt(2), sent(3)])
    write_history(tmp_path, "consumer", [subscribed(), delivered(1)])
    drain = _Drain(tmp_path)
    assert drain.poll() == 1
    assert list(drain.facts.subscriptions) == [ORDERED]
    assert drain.idle_s() >= 0.0
    lost = Event(CONSUMER_CONNECTION_LOST, "consumer")
    write_history(tmp_path, "consumer", [subscribed(), delivered(1), lost])
    assert drain.poll() == 1
    assert drain.idle_s() == 0.0, "a consumer that is cut off cannot be idle"
    arrived = [subscribed(), delivered(1), lost, delivered(2)]
    write_history(tmp_path, "consumer", arrived)
    assert drain.poll() == 0
