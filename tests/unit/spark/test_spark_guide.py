"""The guide to topics in Spark runs, and the reference is what the definitions make."""

import re
from pathlib import Path

import pytest

from pyspark_anabranch.options_reference import reference

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_reference_is_current():
    assert (ROOT / "docs" / "reference" / "spark-options.md").read_text() == reference()


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_the_guide_does_what_it_says(spark, topics, capsys):
    topics.ask("PUT", "namespaces/public/guide", b"{}")
    topics.ask("POST", "namespaces/public/guide/deduplication", b"true")
    place = b'{"ledgerId": -1, "entryId": -1}'
    for name in ("orders", "orders-priced", "orders-copied"):
        topics.ask("PUT", f"persistent/public/guide/{name}")
        topics.ask("PUT", f"persistent/public/guide/{name}/subscription/keeps", place)
    program = "\n".join(BLOCK.findall((ROOT / "docs" / "guides" / "spark.md").read_text()))
    for shown, real in (
        ("pulsar://127.0.0.1:6650", topics.server.service_url),
        ("http://127.0.0.1:8080", topics.server.web_url),
        ('topic="orders', 'topic="public/guide/orders'),
    ):
        assert shown in program
        program = program.replace(shown, real)
    names: dict = {}
    exec(compile(program, "docs/guides/spark.md", "exec"), names)  # noqa: S102 - the guide itself
    assert {row["shop"]: row["count"] for row in names["by_shop"].collect()} == {
        "east": 500,
        "west": 500,
    }
    said = capsys.readouterr().out
    assert "1000 rows were copied in" in said
    assert "public/guide/orders has 0 rows to be read" in said
    assert re.search(r"batch 0: #+ [\d,]+ rows/s", said)
    behind = [int(n) for n in re.findall(r"batch \d: #* (\d+) rows behind", said)]
    assert behind[:3] == [600, 200, 0], "batches of 400 rows"
