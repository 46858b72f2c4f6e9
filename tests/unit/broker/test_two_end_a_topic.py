"""A topic that two want to end at the same time: each gets what it asked for."""

import asyncio

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker.topic import Topic
from anabranch.errors import AnabranchError
from anabranch.ids import TopicName
from anabranch.ownership import Bundle

NAME = TopicName.parse(TOPIC)
WHOLE = Bundle("public/default", 0, 2**32 - 1)


async def test_a_topic_that_is_closed_on_its_way_to_a_delete_is_deleted() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        wire.publish(0, b"x")
        await wire.next()
        await broker.topics.unload(NAME)
        closed: list[Topic] = []

        class Closes:
            def topic_opened(self, topic: Topic) -> None:
                if not closed:
                    closed.append(topic)
                    broker.topics._end(topic, topic.close())

            def topic_closed(self, topic: Topic) -> None: ...

        broker.topics._extensions.observers.append(Closes())
        await broker.topics.delete(NAME)
        assert closed
        assert not await broker.topics.exists(NAME)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_bundle_is_stopped_when_topics_closed_before_have_ended(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, close = asyncio.Event(), Topic.close

    async def held(topic: Topic) -> None:
        await go_on.wait()
        await close(topic)
        if fails:
            raise AnabranchError("not closed in good order")

    async with running_broker() as broker:
        await broker.topics.open(NAME, create=True)
        monkeypatch.setattr(Topic, "close", held)
        unloading = asyncio.ensure_future(broker.topics.unload(NAME))
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(broker.topics.stop(WHOLE))
        for _ in range(10):
            await asyncio.sleep(0)
        too_early = stopping.done()
        go_on.set()
        assert not too_early, "the topic writes yet"
        assert await stopping == []
        assert not broker.topics._closing
        (ended,) = await asyncio.gather(unloading, return_exceptions=True)
        assert isinstance(ended, AnabranchError) if fails else ended is True
