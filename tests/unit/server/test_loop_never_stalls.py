"""With many topics nothing keeps the event loop for long: the work of one callback does not grow.

Nothing is timed. Steps of each callback are counted with some topics and with four times as many;
a callback that goes through all topics at once does four times as much.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from anabranch.broker import unloading
from anabranch.ids import TopicName
from anabranch.ownership import Bundle
from anabranch.ownership.bundles import HIGHEST, LOWEST
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.telemetry.metrics import Metric, Sample
from anabranch.testing.loop_callbacks import callback_steps
from anabranch.testing.web_call import call

FEW, MANY = 150, 600
FIGURES_PER_TOPIC = 4
GROWTH_MAX = 1.5
STEPS_ALLOWED = 1_000
"""Of a callback that does so little it does not matter whether it grows."""
NAMESPACE = "/admin/v2/namespaces/public/default"
EVERYTHING = Bundle("public/default", LOWEST, HIGHEST)
TOPICS = "/admin/v2/persistent/public/default"


@asynccontextmanager
async def server_with(topics):
    """A server in this loop, with topics that have a subscription each, and a figure for each."""
    server = Standalone(
        real_runtime(),
        Settings(metadata_url="memory:", ledgers_url="memory:", port=0, web_port=0),
        metric_sources=(lambda: figures(topics),),
    )
    await server.start()
    try:
        for number in range(topics):
            name = TopicName.parse(f"persistent://public/default/t-{number:05}")
            topic = await server.broker.topics.open(name, create=True)
            await topic.subscribe("s", initial="earliest", properties={})
        yield server
    finally:
        await server.close()


def figures(topics):
    for figure in range(FIGURES_PER_TOPIC):
        samples = (Sample(1, {"topic": f"t-{number:05}"}) for number in range(topics))
        yield Metric(f"made_up_{figure}", "gauge", "One for each topic.", samples)


async def steps_with(topics, action):
    async with server_with(topics) as server:
        with callback_steps() as work:
            await asyncio.create_task(action(server))
        return work.most


async def grown(action):
    """Callbacks that do more, the more topics there are: their names and how much."""
    few, many = await steps_with(FEW, action), await steps_with(MANY, action)
    return {
        name: (few.get(name, 0), steps)
        for name, steps in many.items()
        if steps > STEPS_ALLOWED and steps > GROWTH_MAX * few.get(name, 0)
    }


async def ask(server, path, **options):
    answer = await call(server.web_app, path, **options)
    assert answer.status in (200, 204), answer
    return answer


@pytest.mark.goal("core.B30", part="metrics", broken_by="figures_are_written_at_once")
async def test_the_page_of_figures():
    async def look(server):
        answer = await ask(server, "/metrics")
        assert answer.body.count(b"made_up_3{") in (FEW, MANY)

    assert not await grown(look)


@pytest.mark.goal("core.B30", part="stats", broken_by="nobody_else_has_a_turn")
async def test_statistics_and_lists():
    async def look(server):
        await ask(server, f"{TOPICS}/t-00001/stats")
        await ask(server, f"{TOPICS}/t-00001/internalStats")
        assert len((await ask(server, TOPICS)).body) > 30 * FEW
        await ask(server, f"{NAMESPACE}/topics")

    assert not await grown(look)


@pytest.mark.goal("core.B30", part="retention", broken_by="nobody_else_has_a_turn")
async def test_what_only_time_brings():
    async def look_after(server):
        await server.broker.upkeep.look_after_all()

    assert not await grown(look_after)


@pytest.mark.goal("core.B30", part="policies", broken_by="nobody_else_has_a_turn")
async def test_policies_that_change():
    async def change(server):
        last = server.broker.topics.all()[-1]
        await ask(
            server,
            f"{NAMESPACE}/retention",
            method="POST",
            body=b'{"retentionTimeInMinutes": 7, "retentionSizeInMB": 1}',
            headers={"Content-Type": "application/json"},
        )
        async with asyncio.timeout(60):
            while last.policies.retention.time_minutes != 7:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)

    assert not await grown(change)


class Hearer:
    """The session of a client that watches topics."""

    closed = False

    def __init__(self):
        self.heard = []

    def reply(self, command):
        self.heard.append(command.watchTopicUpdate)


@pytest.mark.goal("core.B30", part="watchers", broken_by="watchers_go_through_all_at_once")
@pytest.mark.goal("core.B30", part="watchers", broken_by="nobody_else_has_a_turn")
async def test_watchers_of_topics():
    """One that begins, and all of them when a topic comes."""

    async def watch(server):
        clients = [Hearer() for _ in range(4)]
        for number, client in enumerate(clients):
            pattern = ("public/default/t-.*", "public/default/(t|u)-.*")[number % 2]
            names, _ = await server.broker.topic_watchers.add(client, 1, "public/default", pattern)
            assert len(names) in (FEW, MANY)
        name = TopicName.parse("persistent://public/default/t-new")
        await server.broker.topics.open(name, create=True)
        async with asyncio.timeout(60):
            while not all(client.heard for client in clients):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        for client in clients:
            assert [list(news.new_topics) for news in client.heard] == [[str(name)]]
            client.closed = True

    assert not await grown(watch)


@pytest.mark.goal("core.B30", part="unload", broken_by="what_is_unloaded_is_told_at_once")
async def test_a_bundle_that_is_given_up():
    async def unload(server):
        topics = server.broker.topics.all()
        await unloading.unload(server.broker, EVERYTHING)
        assert not server.broker.topics.all()
        assert all(topic.closed for topic in topics)

    assert not await grown(unload)


@pytest.mark.goal("core.B30", part="lost bundle", broken_by="what_was_lost_ends_at_once")
async def test_a_bundle_that_is_lost():
    async def lose(server):
        topics = server.broker.topics.all()
        server.broker.ownership.on_lost(EVERYTHING)
        async with asyncio.timeout(60):
            while server.broker.topics.all():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        assert all(topic.closed for topic in topics)

    assert not await grown(lose)
