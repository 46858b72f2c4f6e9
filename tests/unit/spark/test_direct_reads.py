"""Sealed ledgers read where a server stores them: the same rows, without the broker's help."""

import asyncio
import shutil

import pytest

from anabranch.errors import ConfigError, NotFound
from anabranch.ids import TopicName
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.ledgers import append
from pyspark_anabranch.direct.sealed_entries import SealedEntries
from pyspark_anabranch.direct.stored_ledgers import StoredLedgers
from pyspark_anabranch.entry_feed import EntryFeed
from pyspark_anabranch.entry_rows import DamagedEntry, MissingEntry
from pyspark_anabranch.places import Span

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
LEDGERS = 4
PER_LEDGER = 12


@pytest.fixture(scope="module")
def direct(stored_topics):
    """A topic of three sealed ledgers and one that is open, and where they are."""
    for number in range(LEDGERS):
        first = number * PER_LEDGER
        values = [b"%03d" % each for each in range(first, first + PER_LEDGER)]
        kind = {"compression": "zlib"} if number == 1 else {}
        stored_topics.fill("direct", values, **kind)
        if number < LEDGERS - 1:
            stored_topics.roll("direct")
    return stored_topics


def where(topics):
    return f"embedded:{topics.folder}"


@pytest.fixture
def asked(monkeypatch):
    return noted_spans(monkeypatch)


def noted_spans(monkeypatch):
    """A list to which is added what the broker is asked for."""
    found = []
    plain = EntryFeed.__init__

    def noted(self, client, topic, spans, **named):
        found.extend(spans)
        plain(self, client, topic, spans, **named)

    monkeypatch.setattr(EntryFeed, "__init__", noted)
    return found


@pytest.mark.goal("spark.C23", part="ledgers", broken_by="spark_reads_sealed_twice")
def test_both_ways_give_the_same_rows(direct, asked):
    rows = direct.rows(topic="direct")
    asked.clear()
    assert direct.rows(topic="direct", ledgersUrl=where(direct)) == rows
    ledgers = sorted({row["position"]["ledger"] for row in rows})
    assert len(ledgers) == LEDGERS
    assert {span.ledger_id for span in asked} == {ledgers[-1]}, "the broker has only the open one"
    places = ["{ledger}:{entry}:{batch}".format(**row["position"]) for row in rows]
    for first, end, size in ((0, 7, 1), (7, 33, 2), (11, 13, 100), (3, 48, 3), (30, 30, 1)):
        until = places[end] if end < len(places) else "latest"
        wishes = {"start": places[first], "end": until, "maxEntriesPerTask": str(size)}
        found = direct.rows(topic="direct", ledgersUrl=f"{where(direct)}/ledgers", **wishes)
        assert found == rows[first:end]


@pytest.mark.goal("spark.C28", part="ledgers", broken_by="spark_overlooks_a_gap_in_a_ledger")
def test_an_entry_that_the_store_leaves_out_is_named(direct, monkeypatch):
    first = direct.rows(topic="direct")[0]["position"]["ledger"]
    plain = SealedEntries._check

    async def leaving_out(self, view, span):
        await plain(self, view, span)
        read = view.read

        async def gappy(ledger_id, low, high):
            async for entry in read(ledger_id, low, high):
                if entry.entry_id != 1:
                    yield entry

        monkeypatch.setattr(view, "read", gappy)

    monkeypatch.setattr(SealedEntries, "_check", leaving_out)
    wanted = f"entry {first}:1 has to come next, and the store gave {first}:2"
    with pytest.raises(MissingEntry, match=wanted):
        direct.rows(topic="direct", ledgersUrl=where(direct))


@pytest.mark.goal("spark.C28", part="ledgers", broken_by="spark_overlooks_the_end_of_a_ledger")
def test_a_ledger_that_ends_too_early_is_named(direct, monkeypatch):
    first = direct.rows(topic="direct")[0]["position"]["ledger"]
    plain = SealedEntries._check

    async def shortened(self, view, span):
        await plain(self, view, span)
        read = view.read
        monkeypatch.setattr(view, "read", lambda ledger_id, low, high: read(ledger_id, low, low))

    monkeypatch.setattr(SealedEntries, "_check", shortened)
    with pytest.raises(MissingEntry, match=rf"entries {first}:1 to {first}:2 are not at embedded"):
        direct.rows(topic="direct", ledgersUrl=where(direct))


@pytest.fixture
def copied(direct, tmp_path):
    """A copy of the ledgers that a test may spoil."""
    shutil.copytree(direct.folder / "ledgers", tmp_path / "copy")
    return tmp_path / "copy"


def test_a_changed_byte_in_a_ledger_ends_the_task_with_its_place(direct, copied):
    first = direct.rows(topic="direct")[0]["position"]["ledger"]
    assert spoil(copied, b"007", b"0x7") == 1
    with pytest.raises(
        DamagedEntry, match=rf"entries {first}:0 to {first}:2 cannot be read: corrupt"
    ):
        direct.rows(topic="direct", ledgersUrl=f"embedded:{copied}")


def spoil(folder, old, new):
    """Change bytes in the file of the ledgers; return in how many places they were."""
    (file,) = [each for each in sorted((folder / "journal").iterdir()) if each.stat().st_size > 99]
    content = file.read_bytes()
    at = content.index(old)
    file.write_bytes(content[:at] + new + content[at + len(old) :])
    return 1


@pytest.mark.goal("spark.C28", part="ledgers", broken_by="spark_believes_any_ledger")
def test_a_ledger_of_somebody_else_is_refused(direct, tmp_path):
    rows = direct.rows(topic="direct")
    first = rows[0]["position"]["ledger"]
    name = TopicName.parse("direct").managed_ledger_name.encode()
    for number, (made_for, count, close, words) in enumerate(
        (
            (b"other/topic", 3, True, "was made for other/topic"),
            (name, 2, True, "has 2 entries, not 3"),
            (name, 3, False, "is not closed"),
        )
    ):
        place = tmp_path / str(number)
        asyncio.run(other_store(place, first, made_for, count, close))
        with pytest.raises(MissingEntry, match=rf"{first}:0 to {first}:2 are not at .*{words}"):
            direct.rows(topic="direct", ledgersUrl=f"embedded:{place}")


async def other_store(folder, ledger_id, made_for, count, close):
    store = await EmbeddedLedgerStore.open_folder(real_runtime().disk, str(folder))
    noted = {"pulsar/managed-ledger": made_for}
    writer = await store.create(ledger_id, custom_metadata=noted)
    for _ in range(count):
        await append(writer, b"x")
    if close:
        await writer.close()
    await store.close()


def test_what_is_deleted_after_planning_is_named(stored_topics):
    for _ in range(3):
        stored_topics.fill("fading", [b"%03d" % each for each in range(5)])
        stored_topics.roll("fading")
    reader = stored_topics.source(topic="fading", ledgersUrl=where(stored_topics)).reader(None)
    partitions = reader.partitions()
    first = stored_topics.rows(topic="fading")[0]["position"]["ledger"]
    stored_topics.ask("DELETE", "persistent/public/default/fading?force=true")
    with pytest.raises(MissingEntry, match=rf"entries {first}:0 to {first}:0 are not at .*ledger"):
        [batch for partition in partitions for batch in reader.read(partition)]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ledgersUrl": "memory:"}, ConfigError, "within the server: nobody else sees them"),
        ({"ledgersUrl": "embedded:"}, ConfigError, "name the folder of the server's data"),
        ({"ledgersUrl": "bookkeeper:"}, ConfigError, "in which metadata store the bookies reg"),
        ({"ledgersUrl": "tape:"}, ConfigError, "unknown ledger store 'tape:'"),
        ({"ledgersCredentials": "x"}, ConfigError, "of no use without ledgersUrl"),
        ({"ledgersUrl": "embedded:/nowhere/at/all"}, NotFound, "has no folder 'journal'"),
    ],
)
def test_bad_places_of_ledgers_are_named(direct, options, error, words):
    with pytest.raises(error, match=words):
        direct.rows(topic="direct", **options)


def test_a_credentials_file_that_no_task_sees_is_named():
    stored = StoredLedgers("bookkeeper:zk:127.0.0.1:1", credentials="/nowhere/secrets.toml")
    entries = SealedEntries(stored, TopicName.parse("t"), [Span(1, 0, 1)], {1: 1})
    with pytest.raises(ConfigError, match=r"secrets\.toml cannot be read where a task runs"):
        asyncio.run(entries.open())


def test_a_query_of_spark_has_the_same_digest_both_ways_and_after_ledgers_roll(spark, direct):
    def digest(**options):
        table = spark.read.format("anabranch").options(**direct.options(topic="direct", **options))
        found = table.load().selectExpr(
            "count(*) rows",
            "bit_xor(xxhash64(key, value, position, sequence_id, publish_time, producer)) sum",
        )
        return found.first()

    last = direct.rows(topic="direct")[-1]["position"]
    end = f"{last['ledger']}:{last['entry'] + 1}:0"
    through_broker = digest(end=end)
    assert through_broker["rows"] == LEDGERS * PER_LEDGER
    assert digest(end=end, ledgersUrl=where(direct)) == through_broker
    direct.roll("direct")
    direct.fill("direct", [b"more"])
    assert digest(end=end) == through_broker
    assert digest(end=end, ledgersUrl=where(direct)) == through_broker
