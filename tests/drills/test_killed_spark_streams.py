"""The drill that kills what a Spark stream stands on: whether it tells a copy that is wrong.

The drill itself takes minutes on a busy machine: `make drills ARGS="kill-spark --size small"`.
"""

from anabranch.testing.spark_kill_drill import judged


def test_the_drill_tells_a_copy_that_is_wrong() -> None:
    sent = [(b"a", b"0"), (b"b", b"1"), (b"a", b"2")]
    assert judged(sent, [sent[1], sent[0], sent[2]]) == [], "keys may pass each other"
    assert judged(sent, sent[:2]) == ["1 rows are missing, such as (b'a', b'2')"]
    assert judged(sent, [*sent, sent[0]]) == ["1 rows are there more than once"]
    assert judged(sent, [*sent, (b"c", b"9")]) == ["1 rows were never sent"]
    assert judged(sent, sent[::-1]) == ["rows of the key b'a' are in another order"]
