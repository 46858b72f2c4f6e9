"""Columns of sealed ledgers kept in a folder: the same rows, without a look at the ledgers."""

import json
import shutil
import struct

import pytest

from pyspark_anabranch.direct.sealed_entries import SealedEntries

pytestmark = pytest.mark.xdist_group("spark")
LIGHT = "key,topic,partition,position,sequence_id,producer,publish_time,properties,key_hash"
LEDGERS = 3


@pytest.fixture(scope="module")
def topics(stored_topics):
    """A topic of three sealed ledgers with batches and single messages, and one that is open."""
    for number in range(LEDGERS + 1):
        values = [b"%d%02d" % (number, each) for each in range(12)]
        stored_topics.fill("indexed", values)
        stored_topics.fill("indexed", values[:2], batching=None)
        if number < LEDGERS:
            stored_topics.roll("indexed")
    return stored_topics


@pytest.fixture(scope="module")
def plain(topics):
    """What the broker says."""
    return topics.rows(topic="indexed", columns=LIGHT)


@pytest.fixture
def light(topics, tmp_path):
    def rows(columns=LIGHT, **options):
        return topics.rows(
            topic="indexed",
            columns=columns,
            ledgersUrl=f"embedded:{topics.folder}",
            indexFolder=str(tmp_path / "index"),
            **options,
        )

    return rows


@pytest.fixture
def opened(monkeypatch):
    """Which ledgers were read."""
    found = []
    read = SealedEntries.open

    async def noted(self):
        found.extend(span.ledger_id for span in self._spans)
        await read(self)

    monkeypatch.setattr(SealedEntries, "open", noted)
    return found


@pytest.mark.goal("spark.C11", part="payload", broken_by="spark_keeps_no_index")
def test_the_first_query_writes_and_the_next_reads_no_ledger(light, plain, opened, tmp_path):
    assert light() == plain
    ledgers = sorted({row["position"]["ledger"] for row in plain})[:-1]
    assert opened == ledgers
    assert len(list((tmp_path / "index").iterdir())) == LEDGERS
    opened.clear()
    assert light() == plain
    assert light(columns="topic") == [{"topic": row["topic"]} for row in plain]
    assert light(columns="key_hash,key") == [
        {"key_hash": row["key_hash"], "key": row["key"]} for row in plain
    ]
    assert opened == []
    assert [row["value"] for row in light(columns="value")]
    assert opened == ledgers, "payloads are in the ledgers alone"


@pytest.mark.goal("spark.C11", part="index", broken_by="spark_index_is_taken_whole")
def test_a_range_of_an_index_is_a_slice_of_the_whole(light, plain, opened):
    light()
    opened.clear()
    places = ["{ledger}:{entry}:{batch}".format(**row["position"]) for row in plain]
    last_sealed = LEDGERS * 14
    for first in range(0, last_sealed, 3):
        for end in (first, first + 1, first + 8, last_sealed):
            if end <= last_sealed:
                assert light(start=places[first], end=places[end]) == plain[first:end], (first, end)
    assert opened == []


@pytest.mark.goal("spark.C11", part="index", broken_by="spark_index_skips_checksums")
def test_an_index_that_is_damaged_is_not_believed_but_written_anew(light, plain, opened, tmp_path):
    light()
    kept = sorted((tmp_path / "index").iterdir())
    file = kept[0] / "sequence_id.arrow"
    content = file.read_bytes()
    numbers, others = struct.pack("<qqq", 0, 1, 2), struct.pack("<qqq", 0, 1, 9)
    assert numbers in content
    file.write_bytes(content.replace(numbers, others, 1))
    head = json.loads((kept[1] / "index.json").read_text())
    (kept[1] / "index.json").write_text(json.dumps({**head, "version": 2}))
    shutil.rmtree(kept[2])
    opened.clear()
    assert light() == plain
    assert len(opened) == LEDGERS, "each of them was read again"
    opened.clear()
    assert light() == plain
    assert opened == []


def test_a_part_of_a_ledger_makes_no_index_and_neither_does_a_query_that_is_given_up(
    topics, light, plain, tmp_path
):
    places = ["{ledger}:{entry}:{batch}".format(**row["position"]) for row in plain]
    assert light(start=places[1], end=places[12]) == plain[1:12]
    assert not (tmp_path / "index").exists()
    reader = topics.source(
        topic="indexed",
        columns="key",
        ledgersUrl=f"embedded:{topics.folder}",
        indexFolder=str(tmp_path / "index"),
    ).reader(None)
    batches = reader.read(reader.partitions()[0])
    next(batches)
    batches.close()
    assert list((tmp_path / "index").iterdir()) == []
