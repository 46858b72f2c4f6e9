"""A server with one topic, one subscription and five messages, two of them old; asked by REST."""

import asyncio
import json

import pytest

from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.testing.web_call import call
from anabranch.wire import MessageMetadata, build_entry

IN_MEMORY = Settings(port=0, web_port=0, metadata_url="memory:", ledgers_url="memory:")
ONE = "/admin/v2/persistent/public/default/x"
SUBSCRIPTION = f"{ONE}/subscription/s"
OLD_MS, NEW_MS = 1_000, 4_000_000_000_000


@pytest.fixture
async def ask():
    server = Standalone(real_runtime(), IN_MEMORY, web_port=1234)
    await server.start()

    async def ask(method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        return await call(server.web_app, path, method=method, body=data)

    assert (await ask("PUT", f"{SUBSCRIPTION}", "earliest")).status == 204
    topic = await server.broker.topics.open(
        TopicName.parse("persistent://public/default/x"), create=False
    )
    for n in range(5):
        metadata = MessageMetadata(
            producer_name="p", sequence_id=n, publish_time=OLD_MS if n < 2 else NEW_MS
        )
        metadata.properties.add(key="k", value=f"v{n}")
        await stored(topic, build_entry(metadata, b"m%d" % n))
    ask.server = server
    yield ask
    await server.close()


async def stored(topic, entry):
    """Append to the log itself, as a producer's message ends there."""

    done = asyncio.get_running_loop().create_future()

    def appended(position, error):
        done.set_result(position) if error is None else done.set_exception(error)

    topic.ledger.append(entry, appended)
    await done


async def backlog(ask):
    answer = await ask("GET", f"{ONE}/stats")
    return json.loads(answer.body)["subscriptions"]["s"]["msgBacklog"]
