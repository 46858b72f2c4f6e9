"""Messages so small that more of them may be sent ahead than make an Arrow batch."""

import pytest

from anabranch.client import Batching
from pyspark_anabranch.limits import CHUNK_BYTES, FEED_QUEUE_MESSAGES

pytestmark = pytest.mark.xdist_group("spark")
MESSAGES = 2 * FEED_QUEUE_MESSAGES + 10_000


@pytest.mark.broken_by("spark_waits_for_bytes_alone")
def test_a_task_goes_on_when_the_broker_has_sent_as_many_messages_as_it_may(topics):
    values = [b"%06d" % number for number in range(MESSAGES)]
    assert MESSAGES * 50 > CHUNK_BYTES > FEED_QUEUE_MESSAGES * 50
    topics.fill("small", values, batching=Batching(1000, 1 << 20, 5))
    assert topics.values(topic="small", readTimeout="10s") == values
