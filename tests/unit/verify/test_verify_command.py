"""`anabranch verify`: exit codes, evidence, and errors that say what to do."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.testing.made_histories import (
    ORDERED,
    RUN,
    delivered,
    receipt,
    sent,
    stamped,
    subscribed,
    write_history,
)
from anabranch.verify.history import SUFFIX, Header
from anabranch.verify.record_lines import encode
from anabranch.verify.records import Drained, End, Event, Record

SENDS: list[Record] = [r for seq in (1, 2, 3) for r in (sent(seq), receipt(seq))]


def write_run(folder: Path, *, lose: int | None = None) -> None:
    """One producer, one consumer, one coordinator, as three processes would leave them."""
    whole = stamped(
        [
            Event("run-started"),
            subscribed(),
            *SENDS,
            Event("paused", "of old"),
            *(delivered(seq) for seq in (1, 2, 3) if seq != lose),
            Drained(ORDERED, "made"),
            End(),
        ]
    )
    files = {
        "producer": [r for r in whole if type(r).__name__ in ("Send", "Sent", "End")],
        "consumer": [r for r in whole if type(r).__name__ in ("Subscribed", "Delivery", "End")],
        "coordinator": [r for r in whole if type(r).__name__ in ("Event", "Drained", "End")],
    }
    folder.mkdir(exist_ok=True)
    for client, records in files.items():
        names = ("producer", "consumer") if client == "coordinator" else ()
        header = Header(run=RUN, client=client, host="made", topic="made", clients=names)
        content = header.line() + b"".join(map(encode, records))
        (folder / f"{client}{SUFFIX}").write_bytes(content)


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["verify", "check", *map(str, arguments)])


def test_clean_run_exits_0(tmp_path: Path) -> None:
    write_run(tmp_path)
    result = check(tmp_path)
    assert result.exit_code == 0, result.output
    assert "verdict: clean" in result.stdout


@pytest.mark.goal("check.C1")
def test_violation_exits_1_with_its_evidence(tmp_path: Path) -> None:
    write_run(tmp_path, lose=2)
    result = check(tmp_path)
    assert result.exit_code == 1
    assert "producer 0 epoch 0 seq 2" in result.stdout
    assert f"producer{SUFFIX}:4 " in result.stdout, "the line of the send"
    assert f"producer{SUFFIX}:5 " in result.stdout, "the line of its receipt"


def test_verdict_as_json(tmp_path: Path) -> None:
    write_run(tmp_path, lose=2)
    result = check(tmp_path, "--output", "json")
    assert result.exit_code == 1
    verdict = json.loads(result.stdout)
    assert (verdict["format"], verdict["version"]) == ("anabranch-verdict", 1)
    assert verdict["status"] == "violated"
    assert verdict["counts"]["histories"] == 3
    (violation,) = verdict["violations"]
    assert violation["rule"] == "C1"
    assert (violation["producer"], violation["seq"], violation["key"]) == (0, 2, "k")
    assert violation["subscription"] == ORDERED
    assert violation["phase"].startswith("run-started")
    assert [line.split()[0] for line in violation["records"]] == [
        f"producer{SUFFIX}:4",
        f"producer{SUFFIX}:5",
    ]


def test_torn_tail_is_tolerated_and_told(tmp_path: Path) -> None:
    write_run(tmp_path)
    path = tmp_path / f"producer{SUFFIX}"
    path.write_bytes(path.read_bytes()[:-3])
    result = check(tmp_path, "--output", "json")
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)["counts"]
    assert (counts["torn_tails"], counts["unfinished_histories"]) == (1, 1)


def test_client_without_history_is_missed(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / f"producer{SUFFIX}").rename(tmp_path / "elsewhere")
    write_history(tmp_path, "other", SENDS)
    result = check(tmp_path)
    assert result.exit_code == 2
    assert "client 'producer' left no history" in result.stdout


@pytest.mark.parametrize("records", [[], [subscribed(), Drained(ORDERED, "made")]])
def test_empty_history_exits_2(tmp_path: Path, records: list[Record]) -> None:
    write_history(tmp_path, "c", records)
    result = check(tmp_path)
    assert result.exit_code == 2
    assert "verdict: incomplete" in result.stdout
    assert "no send was acknowledged" in result.stdout


def test_unusable_input_exits_2_with_the_reason(tmp_path: Path) -> None:
    result = check(tmp_path / "nowhere")
    assert (result.exit_code, "there is no folder" in result.stderr) == (2, True)
    result = check(tmp_path)
    assert (result.exit_code, "holds no histories" in result.stderr) == (2, True)
    write_history(tmp_path, "c", [receipt(1)])
    result = check(tmp_path)
    assert result.exit_code == 2
    assert f"c{SUFFIX}, line 2: outcome of seq 1" in result.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--url", "http://x"), "must begin with pulsar://"),
        (("--url", "pulsar://x", "--topic", "non-persistent://a/b/c"), "choose a persistent one"),
        (("--url", "pulsar://x", "--topic", "a/b"), "tenant/namespace/topic"),
        (("--url", "pulsar://x", "--subscriptions", "shared,odd"), "known are exclusive, shared"),
    ],
)
def test_impossible_run_is_refused_before_anything_starts(
    tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    folder = tmp_path / "history"
    arguments = ["verify", "run", "--history", str(folder), *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not folder.exists()


def test_nobody_listening_is_said_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    arguments = ["verify", "run", "--url", "pulsar://127.0.0.1:1", "--history", str(folder)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: nothing answers at pulsar://127.0.0.1:1: is the server")
    assert not folder.exists()


def test_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    arguments = ["verify", "run", "--url", "pulsar://127.0.0.1:1", "--history", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
