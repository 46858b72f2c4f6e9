"""`anabranch produce` and `anabranch consume` against a standalone server."""

import json
import os
import re
import signal
import subprocess

import pytest

from anabranch.testing.planted import child_command
from anabranch.testing.servers import anabranch_standalone, pulsar_standalone

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
ANABRANCH = child_command("anabranch")


@pytest.fixture(scope="module", params=["ours", pytest.param("pulsar", marks=pytest.mark.peer)])
def url(request):
    """A server of ours, and the real Pulsar: the commands are ordinary clients."""
    launch = anabranch_standalone if request.param == "ours" else pulsar_standalone
    with launch() as server:
        yield server.service_url


@pytest.fixture
def topic(request):
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def anabranch(url):
    def call(*words: str, stdin: str = "") -> subprocess.CompletedProcess:
        return subprocess.run(
            [*ANABRANCH, *words, "--url", url],
            check=False, input=stdin, capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
        )  # fmt: skip

    return call


EARLIEST = ("-s", "s", "--position", "earliest", "--timeout", "20")


@pytest.mark.parametrize(
    ("compression", "batching"),
    [
        ("none", "--batching"),
        ("none", "--no-batching"),
        ("lz4", "--batching"),
        ("zlib", "--no-batching"),
        ("zstd", "--batching"),
        ("snappy", "--batching"),
    ],
)
def test_messages_come_back_in_order(anabranch, topic, compression, batching):
    done = anabranch(
        "produce", topic, "-m", "a", "-m", "b", "--count", "10",
        "--compression", compression, batching,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"published 20 of 20 messages to {topic}\n"
    done = anabranch("consume", topic, *EARLIEST, "-n", "20")
    assert (done.returncode, done.stdout) == (0, "a\nb\n" * 10)
    assert done.stderr == ""


@pytest.mark.goal("core.B26", part="json", broken_by="json_leaves_out_the_key")
def test_json_carries_key_and_position(anabranch, topic):
    done = anabranch("produce", topic, "-m", "ä", "--key", "k", "--output", "json")
    summary = {"topic": topic, "sent": 1, "acknowledged": 1, "failures": []}
    said = json.loads(done.stdout)
    assert said.pop("seconds") > 0
    assert said == summary
    done = anabranch("consume", topic, *EARLIEST, "--output", "json")
    document = json.loads(done.stdout)
    assert document["payload"] == "ä"
    assert document["key"] == "k"
    assert document["ledger_id"] >= 0
    assert document["entry_id"] == 0
    assert document["topic"].endswith(topic)


def test_lines_of_standard_input_are_messages(anabranch, topic):
    assert anabranch("produce", topic, stdin="x\n\ny z").returncode == 0
    assert anabranch("consume", topic, *EARLIEST, "-n", "3").stdout == "x\n\ny z\n"


def test_without_ack_messages_come_again(anabranch, topic):
    anabranch("produce", topic, "-m", "again")
    for _ in range(2):
        assert anabranch("consume", topic, *EARLIEST, "--no-ack").stdout == "again\n"
    assert anabranch("consume", topic, *EARLIEST).stdout == "again\n"
    done = anabranch("consume", topic, "-s", "s", "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"received 0 of 1 messages from {topic}\n"


def test_shared_subscription_can_be_asked_for(anabranch, topic):
    anabranch("produce", topic, "-m", "x")
    assert anabranch("consume", topic, *EARLIEST, "--type", "shared").stdout == "x\n"


def test_rate_is_kept(anabranch, topic):
    import time

    began = time.monotonic()
    done = anabranch("produce", topic, "-m", "x", "--count", "11", "--rate", "10")
    assert done.returncode == 0
    assert time.monotonic() - began >= 1.0


@pytest.mark.goal("core.B26", part="errors", broken_by="errors_keep_their_trace")
def test_refusals_of_the_server_are_one_line(anabranch, url, topic):
    nowhere = "persistent://nobody/nowhere/t"
    done = anabranch("produce", nowhere, "-m", "x")
    assert done.returncode == 2
    said = f"error: cannot publish to {nowhere}: the server says TopicNotFound: .+\n"
    assert re.fullmatch(said, done.stderr)
    done = anabranch("produce", "persistent://nobody", "-m", "x")
    assert "a topic is named like my-topic" in done.stderr
    holder = subprocess.Popen(
        [*ANABRANCH, "consume", topic, "-s", "s", "--follow", "--url", url,
         "--position", "earliest"],
        stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        anabranch("produce", topic, "-m", "x")
        assert holder.stdout.readline() == "x\n"
        done = anabranch("consume", topic, "-s", "s")
        assert done.returncode == 2
        assert "the server says ConsumerBusy" in done.stderr
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.parametrize(("options", "code"), [(["--follow"], 0), (["-n", "5"], 130)])
def test_interrupt_ends_a_consumer_cleanly(anabranch, url, topic, options, code):
    anabranch("produce", topic, "-m", "x")
    process = subprocess.Popen(
        [*ANABRANCH, "consume", topic, *EARLIEST[:4], *options, "--url", url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "x\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == code
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    # The acknowledgement was sent before the end.
    assert anabranch("consume", topic, "-s", "s", "--timeout", "1").stdout == ""


def test_reading_without_a_subscription(anabranch, topic):
    texts = [word for n in range(6) for word in ("-m", str(n))]
    assert anabranch("produce", topic, *texts, "--no-batching").returncode == 0
    read = ("consume", topic, "--timeout", "20")
    everything = anabranch(*read, "--from", "earliest", "-n", "6", "--output", "json")
    messages = [json.loads(line) for line in everything.stdout.splitlines()]
    assert [message["payload"] for message in messages] == list("012345"), everything.stderr
    third = messages[2]
    place = f"{third['ledger_id']}:{third['entry_id']}"
    assert anabranch(*read, "--from", place, "-n", "4").stdout.split() == list("2345")
    assert anabranch(*read, "--from", "1h", "-n", "6").stdout.split() == list("012345")
    nothing = anabranch("consume", topic, "--timeout", "1", "--from", "2999-01-01T00:00:00Z")
    assert (nothing.returncode, nothing.stdout) == (1, "")


def test_reading_from_inside_a_batch(anabranch, topic):
    texts = [word for n in range(5) for word in ("-m", str(n))]
    assert anabranch("produce", topic, *texts).returncode == 0
    line = anabranch("consume", topic, "--from", "earliest", "--output", "json").stdout
    first = json.loads(line)
    place = f"{first['ledger_id']}:{first['entry_id']}:3"
    done = anabranch("consume", topic, "--from", place, "-n", "2", "--timeout", "20")
    assert done.stdout.split() == ["3", "4"], done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--from", "yesterday"), "'yesterday' is no place to begin"),
        (("-s", "s", "--from", "earliest"), "--from is for reading without a subscription"),
        (("--type", "shared"), "--type needs a subscription"),
        (("--position", "earliest"), "--position needs a subscription"),
        (("--no-ack",), "--no-ack needs a subscription"),
    ],
)
def test_choices_that_do_not_go_together(anabranch, topic, words, reason):
    done = anabranch("consume", topic, *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stdout == ""


def test_payloads_are_bytes(url, topic):
    """Also such as are no text: a message is what was given."""

    def call(*words: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [*(word.encode() for word in ANABRANCH), *words, b"--url", url.encode()]
        return subprocess.run(
            command, check=False, input=stdin, capture_output=True, timeout=60, env=ENVIRONMENT
        )

    name = topic.encode()
    done = call(b"produce", name, b"-m", b"a\xffb")
    assert done.returncode == 0, done.stderr
    done = call(b"produce", name, stdin=b"\xfe\x00\n\r\nend")
    assert done.returncode == 0, done.stderr
    read = (b"consume", name, b"--from", b"earliest", b"-n", b"4", b"--timeout", b"20")
    assert call(*read).stdout == b"a\xffb\n\xfe\x00\n\r\nend\n"
    for words, wrong in (
        ((b"produce", name, b"-m", b"x", b"--key", b"k\xff"), b"--key"),
        ((b"produce", b"t\xff", b"-m", b"x"), b"TOPIC"),
        ((b"consume", name, b"-s", b"s\xff"), b"--subscription"),
    ):
        done = call(*words)
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: " + wrong + b" must be UTF-8 text, not b'"), words
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("kind", ["failover", "key_shared"])
def test_every_type_of_subscription_receives(anabranch, topic, kind):
    anabranch("produce", topic, "-m", "one")
    words = (
        "consume",
        topic,
        "-s",
        "s",
        "--type",
        kind,
        "--position",
        "earliest",
        "--timeout",
        "10",
    )
    done = anabranch(*words)
    assert (done.returncode, done.stdout) == (0, "one\n")
