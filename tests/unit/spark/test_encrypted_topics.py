"""Messages that the stock client encrypted, read with the right keys, wrong ones, and none."""

import json
import random
from functools import partial

import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from anabranch.errors import ConfigError
from anabranch.wire import build_entry, parse_entry
from anabranch.wire.compression import COMPRESSIONS, decompress
from anabranch.wire.decryption import (
    DamagedCiphertext,
    Decryption,
    PrivateKeyMissing,
    WrongPrivateKey,
    private_key,
)
from pyspark_anabranch.encrypted_entries import FAIL, Unlocking
from pyspark_anabranch.entry_rows import StoredEntry, rows_of
from pyspark_anabranch.row_columns import COLUMNS, Origin, record_batch

pytestmark = pytest.mark.xdist_group("spark")
OAEP = padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)
TYPES = {name: getattr(pulsar.CompressionType, ["NONE", "ZLib", "LZ4", "ZSTD", "SNAPPY"][index])
         for index, name in enumerate(("none", "zlib", "lz4", "zstd", "snappy"))}  # fmt: skip
LARGE = 6 << 20
"""More than a broker takes in one entry."""


def pem_of(key, protection=None):
    protection = protection or NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with two private keys, and their public halves beside it."""
    folder = tmp_path_factory.mktemp("private")
    public = tmp_path_factory.mktemp("public")
    for name in ("mine", "other"):
        key = rsa.generate_private_key(65537, 2048)
        (folder / f"{name}.pem").write_bytes(pem_of(key))
        (public / name).write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
    return folder, public


@pytest.fixture
def send(stored_topics, keys):
    """Publish with the stock client, encrypted."""
    _, public = keys
    client = pulsar.Client(
        stored_topics.server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )

    def publish(topic, values, *, key="mine", **options):
        client.subscribe(topic, "keeps").close()
        reader = pulsar.CryptoKeyReader(str(public / key), "")
        producer = client.create_producer(
            topic, encryption_key=key, crypto_key_reader=reader, **options
        )
        refused = []

        def answered(result, _):
            if result != pulsar.Result.Ok:
                refused.append(result)

        for number, value in enumerate(values):
            about = {"number": str(number)}
            producer.send_async(value, answered, properties=about, partition_key=f"k{number % 3}")
        producer.flush()
        producer.close()
        assert not refused

    yield publish
    client.close()


BATCHED = {
    "batching_enabled": True,
    "batching_max_messages": 5,
    "batching_max_publish_delay_ms": 10_000,
}


@pytest.mark.goal("spark.C15", part="encrypted", broken_by="spark_leaves_single_messages_encrypted")
def test_every_compression_batched_or_not_is_read_as_it_was_sent(stored_topics, send, keys):
    folder, _ = keys
    random.seed(15)
    values = [random.randbytes(number * 97 % 400) + bytes(300) for number in range(23)]
    for compression in COMPRESSIONS:
        send("secret", values, compression_type=TYPES[compression], **BATCHED)
        send("secret", values, compression_type=TYPES[compression], batching_enabled=False)
    rows = stored_topics.rows(topic="secret", decryptionKeys=str(folder))
    expected = values * 2 * len(COMPRESSIONS)
    assert [row["value"] for row in rows] == expected
    assert [dict(row["properties"])["number"] for row in rows] == [
        str(number) for _ in range(2 * len(COMPRESSIONS)) for number in range(len(values))
    ]
    assert {row["key"] for row in rows} == {b"k0", b"k1", b"k2"}
    assert {row["position"]["batch"] for row in rows} == {-1, 0, 1, 2, 3, 4}
    named = json.dumps({"mine": str(folder / "mine.pem")})
    stored_topics.roll("secret")
    for options in (
        {"ledgersUrl": f"embedded:{stored_topics.folder}"},
        {"maxRowsPerTask": "7"},
    ):
        assert stored_topics.rows(topic="secret", decryptionKeys=named, **options) == rows


@pytest.mark.goal("spark.C15", part="encrypted", broken_by="spark_joins_encrypted_chunks")
def test_chunks_are_decrypted_one_by_one_whoever_reads_their_parts(stored_topics, send, keys):
    folder, _ = keys
    values = [random.Random(3).randbytes(LARGE), b"small", random.Random(4).randbytes(LARGE)]
    send(
        "large-secret", values, batching_enabled=False, chunking_enabled=True,
        compression_type=TYPES["lz4"],
    )  # fmt: skip
    rows = partial(stored_topics.rows, topic="large-secret", decryptionKeys=str(folder))
    found = rows()
    assert [row["value"] for row in found] == values
    assert rows(maxEntriesPerTask="1") == found
    # Without the key every chunk is a row, and says which chunk it is.
    raw = stored_topics.rows(topic="large-secret", cryptoFailureAction="consume")
    chunks = [(row["encryption"]["chunk"], row["encryption"]["chunks"]) for row in raw]
    assert chunks == [(0, 2), (1, 2), (None, None), (0, 2), (1, 2)]


@pytest.mark.goal("spark.C15", part="encrypted", broken_by="spark_leaves_out_what_has_no_key")
def test_what_no_key_opens_fails_with_its_place_and_the_reason(stored_topics, send, keys, tmp_path):
    folder, _ = keys
    send("for-two", [b"first"])
    send("for-two", [b"second"], key="other")
    with pytest.raises(PrivateKeyMissing, match=r"entry \d+:0 cannot be decrypted: it is "
                       "encrypted for 'mine', and the private keys here are none"):  # fmt: skip
        stored_topics.rows(topic="for-two")
    mine = {"mine": str(folder / "mine.pem")}
    with pytest.raises(PrivateKeyMissing, match=r":1 cannot .* 'other', .* here are 'mine'"):
        stored_topics.rows(topic="for-two", decryptionKeys=json.dumps(mine))
    exchanged = {"mine": str(folder / "other.pem"), "other": str(folder / "mine.pem")}
    with pytest.raises(WrongPrivateKey, match=r":0 cannot be decrypted: .* 'mine', and not for"):
        stored_topics.rows(topic="for-two", decryptionKeys=json.dumps(exchanged))
    both = stored_topics.values(topic="for-two", decryptionKeys=str(folder))
    assert both == [b"first", b"second"]


def test_what_no_key_opens_is_left_out_if_that_is_wanted(stored_topics, send, keys):
    folder, _ = keys
    send("half", [b"%d" % number for number in range(7)], **BATCHED)
    send("half", [b"hidden"], key="other")
    send("half", [b"last"], batching_enabled=False)
    mine = json.dumps({"mine": str(folder / "mine.pem")})
    options = {"decryptionKeys": mine, "cryptoFailureAction": "discard"}
    expected = [b"%d" % number for number in range(7)] + [b"last"]
    assert stored_topics.values(topic="half", **options) == expected
    assert "encryption" not in stored_topics.rows(topic="half", **options)[0]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_no_key_opens_is_handed_over_with_what_it_takes_to_open_it(
    stored_topics, send, keys, compression
):
    folder, _ = keys
    topic = f"handed-over-{compression}"
    send(topic, [b"%d" % number for number in range(5)], **BATCHED)
    send(topic, [b"alone" * 20], key="other", batching_enabled=False,
         compression_type=TYPES[compression])  # fmt: skip
    send(topic, [b"%d" % number for number in range(3)], key="other",
         compression_type=TYPES[compression], **BATCHED)  # fmt: skip
    mine = json.dumps({"mine": str(folder / "mine.pem")})
    options = {"topic": topic, "decryptionKeys": mine, "cryptoFailureAction": "consume"}
    rows = stored_topics.rows(**options)
    assert [row["encryption"] for row in rows[:5]] == [None] * 5
    assert [row["value"] for row in rows[:5]] == [b"0", b"1", b"2", b"3", b"4"]
    assert [row["position"]["batch"] for row in rows[5:]] == [-1, -1]
    other = private_key("other", (folder / "other.pem").read_bytes())
    clear = []
    for row in rows[5:]:
        context = row["encryption"]
        ((name, wrapped),) = context["keys"]
        assert name == "other"
        assert context["compression"] == compression
        cipher = AESGCM(other.decrypt(wrapped, OAEP))
        packed = cipher.decrypt(context["parameter"], row["value"], None)
        number = COMPRESSIONS.index(compression)
        clear.append(bytes(decompress(number, packed, context["uncompressed_size"])))
    assert [row["encryption"]["messages"] for row in rows[5:]] == [None, 3]
    assert clear[0] == b"alone" * 20
    assert clear[1].endswith(b"2")
    # An entry that nobody can open is one row, wherever tasks are cut.
    assert stored_topics.rows(**options, maxRowsPerTask="1") == rows
    light = stored_topics.rows(**options, columns="key,position")
    assert [list(row) for row in light] == [["key", "position"]] * 7


def test_spark_gets_rows_that_are_decrypted_and_rows_that_are_not(spark, stored_topics, send, keys):
    folder, _ = keys
    send("in-spark", [b"%d" % number for number in range(5)], **BATCHED)
    send("in-spark", [b"hidden"], key="other")
    mine = json.dumps({"mine": str(folder / "mine.pem")})
    options = stored_topics.options(
        topic="in-spark", decryptionKeys=mine, cryptoFailureAction="consume"
    )
    table = spark.read.format("anabranch").options(**options).load()
    found = table.selectExpr(
        "position.entry", "encryption.messages", "map_keys(encryption.keys) names", "value"
    ).collect()
    assert [tuple(row)[:3] for row in found] == [(0, None, None)] * 5 + [(1, None, ["other"])]
    assert [bytes(row.value) for row in found[:5]] == [b"0", b"1", b"2", b"3", b"4"]


class Sealed:
    """An entry as a producer with several public keys would make it."""

    def __init__(self, metadata, names):
        self.metadata = metadata
        self.keys = {name: rsa.generate_private_key(65537, 2048) for name in names}
        secret = AESGCM.generate_key(256)
        for name, key in self.keys.items():
            wrapped = key.public_key().encrypt(secret, OAEP)
            metadata.encryption_keys.add(key=name, value=wrapped)
        metadata.encryption_param = bytes(range(12))
        self.payload = AESGCM(secret).encrypt(metadata.encryption_param, b"hidden", None)

    def entry(self, **changes):
        for name, value in changes.items():
            setattr(self.metadata, name, value)
        return StoredEntry(3, 4, build_entry(self.metadata, self.payload))


@pytest.fixture(scope="module")
def sealed():
    from anabranch.generated.pulsar_api_pb2 import MessageMetadata

    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    return Sealed(metadata, ("first", "second"))


@pytest.mark.parametrize("names", [["first"], ["second"], ["second", "first"]])
def test_one_key_of_several_is_enough(sealed, names):
    unlocking = Unlocking({name: sealed.keys[name] for name in names}, FAIL)
    rows = rows_of([sealed.entry()] * 3, unlocking=unlocking)
    batch = record_batch(rows, COLUMNS, Origin("t", -1))
    assert batch.column("value").to_pylist() == [b"hidden"] * 3


def test_a_key_that_does_not_fit_does_not_hide_one_that_does(sealed):
    keys = {"first": rsa.generate_private_key(65537, 2048), "second": sealed.keys["second"]}
    metadata, payload = parse_entry(sealed.entry().content)
    assert Decryption(keys).decrypted(metadata, payload) == b"hidden"


@pytest.mark.goal("spark.C15", part="encrypted", broken_by="decryption_skips_the_tag")
@pytest.mark.parametrize("at", [0, 5, -1])
def test_a_changed_payload_is_refused_though_its_checksum_is_right(sealed, at):
    metadata, payload = parse_entry(sealed.entry().content)
    changed = bytearray(payload)
    changed[at] ^= 1
    entry = StoredEntry(3, 4, build_entry(metadata, bytes(changed)))
    with pytest.raises(DamagedCiphertext, match="entry 3:4 cannot be decrypted: it was changed"):
        rows_of([entry], unlocking=Unlocking(sealed.keys, FAIL))


@pytest.mark.parametrize("nonce", [b"", b"short"])
def test_a_nonce_that_is_none_is_refused(sealed, nonce):
    metadata, payload = parse_entry(sealed.entry().content)
    metadata.encryption_param = nonce
    entry = StoredEntry(3, 4, build_entry(metadata, payload))
    with pytest.raises(DamagedCiphertext, match=r"3:4 .* not encrypted as it says"):
        rows_of([entry], unlocking=Unlocking(sealed.keys, FAIL))


def test_keys_and_options_that_are_of_no_use_are_named(stored_topics, send, keys, tmp_path):
    folder, _ = keys
    send("named", [b"a"])
    read = partial(stored_topics.rows, topic="named")
    with pytest.raises(ConfigError, match=r"decryptionKeys: .*nowhere"):
        read(decryptionKeys=str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"no file in .* is called NAME\.pem"):
        read(decryptionKeys=str(tmp_path))
    with pytest.raises(ConfigError, match=r"private key 'mine' cannot be read: .*nowhere"):
        read(decryptionKeys='{"mine": "/nowhere.pem"}')
    with pytest.raises(ConfigError, match="decryptionKeys: the file of key 'mine' is wanted"):
        read(decryptionKeys='{"mine": 3}')
    with pytest.raises(ConfigError, match="decryptionKeys: not JSON"):
        read(decryptionKeys="{mine}")
    with pytest.raises(
        ConfigError, match="cryptoFailureAction: fail, discard or consume is wanted"
    ):
        read(cryptoFailureAction="ignore")
    with pytest.raises(ConfigError, match="column encryption is always null unless"):
        read(columns="value,encryption")
    with pytest.raises(ConfigError, match="indexFolder and decryptionKeys do not go together"):
        read(
            decryptionKeys=str(folder), indexFolder=str(tmp_path),
            ledgersUrl=f"embedded:{stored_topics.folder}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        (b"no key", "cannot be read"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "is not an RSA key"),
        (
            pem_of(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"word")),
            "cannot be read: .*[Pp]assword",
        ),
    ],
    ids=["no key", "elliptic", "password"],
)
def test_files_that_hold_no_key_for_this_are_named(pem, words):
    with pytest.raises(ConfigError, match=f"the private key 'mine' {words}"):
        private_key("mine", pem)
