"""What the web interface answers, asked in process about a server made up for the test."""

import json

import pytest

from anabranch import __version__
from anabranch.admin import TopicAddress, WebInterface
from anabranch.errors import NotFound, StoreFailed
from anabranch.telemetry.metrics import gauge
from anabranch.testing.web_call import call


class MadeUpServer:
    """A `Served` whose every answer the test decides."""

    cluster = "here"
    web_url = "http://h:2"
    authentication = None
    authorization = None

    def __init__(self):
        self.not_ready = None
        self.unhealthy = None
        self.out_of_order = None
        self.partitions = 0
        self.failure = None
        self.asked = []

    def why_not_ready(self):
        return self.not_ready

    async def why_unhealthy(self):
        return self.unhealthy

    def degraded(self):
        return self.out_of_order

    async def locate(self, topic, *, authoritative):
        self.asked.append(str(topic))
        if self.failure:
            raise self.failure
        return TopicAddress("pulsar://h:1", "", "http://h:2", "")

    async def partitions_of(self, topic):
        self.asked.append(str(topic))
        return self.partitions

    def metrics(self):
        return [gauge("pulsar_topics_count", "Topics.", 3)]


@pytest.fixture
def server():
    return MadeUpServer()


@pytest.fixture
def get(server):
    app = WebInterface(server)
    return lambda path, **how: call(app, path, **how)


@pytest.mark.goal("core.B20", part="health", broken_by="health_forgets_readiness")
async def test_health_is_ok_text_only_while_ready_and_healthy(server, get):
    answer = await get("/admin/v2/brokers/health")
    assert (answer.status, answer.body) == (200, b"ok")
    server.unhealthy = "the disk is gone"
    answer = await get("/admin/v2/brokers/health")
    assert answer.status == 503
    assert json.loads(answer.body) == {"reason": "the disk is gone"}
    server.unhealthy = None
    server.not_ready = "starting"
    assert (await get("/admin/v2/brokers/health")).status == 503


async def test_what_is_degraded_is_healthy_and_said(server, get):
    assert "x-anabranch-degraded" not in (await get("/admin/v2/brokers/health")).headers
    server.out_of_order = "no room for\n7 bytes in ./däta"
    answer = await get("/admin/v2/brokers/health")
    assert (answer.status, answer.body) == (200, b"ok")
    assert answer.headers["x-anabranch-degraded"] == "no room for%0A7 bytes in ./d%C3%A4ta"
    server.unhealthy = "the disk is gone"
    assert "x-anabranch-degraded" not in (await get("/admin/v2/brokers/health")).headers


async def test_ready_follows_start_and_stop_and_not_health(server, get):
    server.unhealthy = "the disk is gone"
    assert (await get("/admin/v2/brokers/ready")).body == b"ok"
    server.not_ready = "stopping"
    answer = await get("/admin/v2/brokers/ready")
    assert (answer.status, json.loads(answer.body)) == (503, {"reason": "stopping"})


async def test_version_is_text(get):
    assert (await get("/admin/v2/brokers/version")).body.decode() == __version__


async def test_metrics_are_prometheus_text(get):
    answer = await get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"pulsar_topics_count 3\n" in answer.body


async def test_lookup_has_every_key_with_empty_text_for_no_tls(server, get):
    answer = await get("/lookup/v2/topic/persistent/public/default/my-topic?authoritative=false")
    assert json.loads(answer.body) == {
        "brokerUrl": "pulsar://h:1",
        "brokerUrlTls": "",
        "httpUrl": "http://h:2",
        "httpUrlTls": "",
        "nativeUrl": "pulsar://h:1",
        "brokerUrlSsl": "",
    }
    assert server.asked == ["persistent://public/default/my-topic"]


async def test_topic_names_may_have_slashes_and_odd_characters(server, get):
    await get("/lookup/v2/topic/persistent/public/default/a%2Fb%20c")
    await get("/lookup/v2/topic/non-persistent/public/default/partitions")
    assert server.asked == [
        "persistent://public/default/a/b c",
        "non-persistent://public/default/partitions",
    ]


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/nowhere", 404, "nothing is served at /nowhere"),
        ("/admin/v2/brokers/a/b/partitions", 404, "nothing is served at"),
        ("/lookup/v2/topic/carrier-pigeon/a/b/c", 404, "nothing is served at"),
        ("/lookup/v2/topic/persistent/a%20b/c/d", 412, "Tenant name is not valid"),
    ],
)
async def test_errors_are_json_with_a_reason(get, path, status, reason):
    answer = await get(path)
    assert answer.status == status
    assert reason in json.loads(answer.body)["reason"]


async def test_wrong_method_is_405_with_a_reason(get):
    answer = await get("/metrics", method="DELETE")
    assert answer.status == 405
    assert json.loads(answer.body)["reason"] == "DELETE is not possible at /metrics"


@pytest.mark.parametrize(
    ("failure", "status"), [(NotFound("no namespace a/b"), 404), (StoreFailed("disk"), 503)]
)
async def test_errors_of_the_server_keep_their_words(server, get, failure, status):
    server.failure = failure
    answer = await get("/lookup/v2/topic/persistent/a/b/c")
    assert (answer.status, json.loads(answer.body)) == (status, {"reason": str(failure)})
