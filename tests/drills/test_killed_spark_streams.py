"""A Spark stream whose driver, worker and broker are killed: each row once, keys in order.

`make drills ARGS=kill-spark` kills each of them twenty times.
"""

from pathlib import Path

import pytest

from anabranch.testing.spark_kill_drill import judged, prepared

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


@pytest.mark.goal("spark.C3", part="kills", broken_by="spark_counts_batches_from_its_start")
@pytest.mark.goal("spark.C17", part="kills", broken_by="spark_counts_batches_from_its_start")
def test_a_stream_whose_driver_worker_and_broker_are_killed_copies_each_row_once(
    tmp_path: Path,
) -> None:
    with prepared(tmp_path, seed=4) as drill:
        verdict = drill.run(1)
    assert verdict["violations"] == []
    assert verdict["kills"] == {"driver": 1, "worker": 1, "broker": 1}
    assert verdict["kills_amid"] == 3
    assert verdict["rows"] >= 400


def test_the_drill_tells_a_copy_that_is_wrong() -> None:
    sent = [(b"a", b"0"), (b"b", b"1"), (b"a", b"2")]
    assert judged(sent, [sent[1], sent[0], sent[2]]) == [], "keys may pass each other"
    assert judged(sent, sent[:2]) == ["1 rows are missing, such as (b'a', b'2')"]
    assert judged(sent, [*sent, sent[0]]) == ["1 rows are there more than once"]
    assert judged(sent, [*sent, (b"c", b"9")]) == ["1 rows were never sent"]
    assert judged(sent, sent[::-1]) == ["rows of the key b'a' are in another order"]
