"""A task that is killed while it sends and is tried again: rows are known by their numbers."""

import subprocess
import time

import pytest

from anabranch.testing.planted import child_command
from anabranch.testing.spark_senders import ROWS_PER_BATCH, batches, send

BATCHES = 400
ROWS = BATCHES * ROWS_PER_BATCH
ENOUGH = ROWS // 50
PATIENCE_S = 120.0
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.mark.goal("spark.C18", part="kills", broken_by="spark_numbers_rows_anew")
def test_what_a_killed_task_has_sent_is_not_stored_a_second_time(topics):
    topics.ask("PUT", "namespaces/public/sent", b"{}")
    topics.ask("POST", "namespaces/public/sent/deduplication", b"true")
    name = "public/sent/killed"
    topics.ask("PUT", f"persistent/{name}")
    place = b'{"ledgerId": -1, "entryId": -1}'
    topics.ask("PUT", f"persistent/{name}/subscription/keeps", place)
    server = (topics.server.service_url, topics.server.web_url)
    arguments = (*server, name, str(BATCHES))
    task = subprocess.Popen(child_command("anabranch.testing.spark_senders", *arguments))
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(topics.rows(topic=name, columns="position")) < ENOUGH:
            assert task.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline_s
    finally:
        task.kill()
        task.wait()
    before = len(topics.rows(topic=name, columns="position"))
    assert ENOUGH <= before < ROWS, "it was killed on its way"
    assert send(*server, name, batches(BATCHES)) <= ROWS - before, "the others were known"
    assert topics.values(topic=name) == [b"%d" % number for number in range(ROWS)]
