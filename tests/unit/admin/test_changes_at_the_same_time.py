"""Two administrators at once, handlers with bugs, and figures with several samples."""

import json

import pytest

from anabranch.admin import WebInterface
from anabranch.broker.limits import DELAYED_TICK_MS_MAX
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.policies import DelayedDelivery, NamespacePolicies
from anabranch.policies.effective import PolicyDefaults, resolve
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.server.topic_metrics import topic_metrics
from anabranch.telemetry.metrics import STILL_COUNTING, Metric, Sample, render
from anabranch.testing.web_call import call

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
PATH = "/admin/v2/namespaces/public/default"
QUOTA = {"limitSize": 10, "limitTime": 10, "policy": "producer_exception"}
RATE = {"dispatchThrottlingRateInMsg": 7}


@pytest.fixture
async def server():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234, survives_mishaps=True)
    await server.start()
    yield server
    await server.close()


async def ask(server, method, page, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    return await call(server.web_app, f"{PATH}/{page}", method=method, body=data)


class Interrupted:
    """Lets another request be carried out right before one is written."""

    def __init__(self, store, meanwhile):
        self._store = store
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, *args, **more):
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await self._store.put(*args, **more)


@pytest.mark.parametrize(
    ("page", "body", "other_page", "other", "shown"),
    [
        (
            "backlogQuota?backlogQuotaType=destination_storage", QUOTA,
            "backlogQuota?backlogQuotaType=message_age", QUOTA, "backlogQuotaMap",
        ),
        ("property/a/1", None, "property/b/2", None, "properties"),
    ],
)  # fmt: skip
async def test_of_two_changes_at_once_none_is_lost(
    server, monkeypatch, page, body, other_page, other, shown
):
    method = "PUT" if page.startswith("property") else "POST"

    async def meanwhile():
        monkeypatch.undo()
        assert (await ask(server, method, other_page, other)).status == 204

    store = server.metadata
    monkeypatch.setattr(
        type(server), "metadata", property(lambda self: Interrupted(store, meanwhile))
    )
    assert (await ask(server, method, page, body)).status == 204
    found = json.loads((await ask(server, "GET", shown)).body)
    assert len(found) == 2, found


async def test_a_bug_of_a_handler_is_counted_and_told(server, monkeypatch):
    monkeypatch.setattr(
        WebInterface, "_find", lambda self, request: (_ for _ in ()).throw(KeyError("a bug"))
    )
    answer = await ask(server, "GET", "retention")
    assert (answer.status, server.broker.mishaps.count) == (500, 1)
    assert "a bug" not in answer.body.decode()
    monkeypatch.undo()
    assert (await ask(server, "GET", "retention")).status == 200


async def test_samples_of_a_histogram_keep_their_names(server, monkeypatch):
    samples = (Sample(1, {"le": "5"}, "_bucket"), STILL_COUNTING, Sample(3, suffix="_count"))
    monkeypatch.setattr(
        type(server), "metrics", lambda self: [Metric("latency", "histogram", "Of it.", samples)]
    )
    answer = await call(server.web_app, "/admin/v2/broker-stats/metrics")
    names = [list(each["metrics"]) for each in json.loads(answer.body)]
    assert names == [["latency_bucket"], ["latency_count"]]
    page = "".join(render(server.metrics()))
    assert page.splitlines()[2:] == ['latency_bucket{le="5"} 1', "latency_count 3"]


async def test_sums_over_many_topics_leave_the_loop_to_others(server):
    for number in range(30):
        answer = await call(
            server.web_app,
            f"/admin/v2/persistent/public/default/t{number}",
            method="PUT",
        )
        assert answer.status == 204
    topics = server.broker.topics.all()
    metrics = topic_metrics(topics, cluster="c", each_topic=False)
    first = next(iter(metrics))
    samples = [sample for sample in first.samples if sample is not STILL_COUNTING]
    assert [sample.labels["namespace"] for sample in samples] == ["public/default"]
    slices = list(render(topic_metrics(topics, cluster="c", each_topic=False), lines_max=10))
    assert len(slices) > 3


@pytest.mark.parametrize(("said", "lived_by"), [(-5, 1), (50, 50), (2**60, DELAYED_TICK_MS_MAX)])
def test_a_tick_is_neither_nothing_nor_for_ever(said, lived_by):
    policies = NamespacePolicies(delayed_delivery=DelayedDelivery(tick_time_ms=said, active=True))
    rules = DeliveryRules()
    rules.follow(resolve(PolicyDefaults(), policies, cluster="c"))
    assert rules.tick_ms == lived_by
