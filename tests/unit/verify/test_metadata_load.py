"""The metadata load on real stores, its histories on disk, and its commands."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.errors import AnabranchError, Corruption, FormatError, InputError, NotFound
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.verify.metadata_check import check_metadata, run_metadata
from anabranch.verify.metadata_records import (
    SUFFIX,
    Call,
    Counted,
    Done,
    Held,
    MetadataRecord,
    Note,
    Op,
    Read,
    Seen,
    Watched,
    Watching,
    decode,
    encode,
    header_line,
)
from anabranch.verify.metadata_rules import MetadataVerdict
from anabranch.verify.metadata_run import MetadataLoad
from anabranch.verify.records import Outcome
from anabranch.verify.verdict import Status

ONE_OF_EACH: list[MetadataRecord] = [
    Call(1, Op.SWAP, "/run/k", "c/1", (1, 7, 0)),
    Done(1, Outcome.OK, "/run/k", (1, 1, 0), (1, 1)),
    Call(2, Op.PUT, "/run/k", "c/2"),
    Done(2, Outcome.UNKNOWN, err="lost"),
    Read("/run/k", None, None, None, 0.5),
    Read("/run/k", "ä", (1, 4, 0), (1, 4), 0.5),
    Watching((1, 2)),
    Seen("created", "/run/k", (1, 1)),
    Watched((1, 2), True),
    Held("/run/k", '"', (1, 3, 0), (1, 3)),
    Counted(1),
    Note("paused", "x"),
]


@pytest.mark.parametrize("record", ONE_OF_EACH, ids=lambda record: type(record).__name__)
def test_line_is_read_back(record: MetadataRecord) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"7", b"{}", b'{"k":"other","t":1}', b'{"k":"call","t":1}',
        b'{"k":"seen","kind":"x","path":"/a","revision":[1],"t":1}',
        b'{"k":"seen","kind":"x","path":"/a","revision":[1,2]}',
        b'{"k":"done","n":"1","r":"ok","t":1}', b'{"k":"done","n":1,"r":"maybe","t":1}',
        b'{"k":"event","name":7,"t":1}', b'{"k":"event","name":"x","t":NaN}', b"\xff",
        b'{"k":"event","name":"x","t":1,"surprise":1}',
    ],
)  # fmt: skip
def test_nonsense_is_no_record(line: bytes) -> None:
    with pytest.raises(FormatError, match="not a metadata record"):
        decode(line)


def history(folder: Path, *lines: bytes, name: str = "c", run: str = "r") -> Path:
    folder.mkdir(exist_ok=True)
    header = header_line(run=run, client=name, prefix="/run")
    (folder / f"{name}{SUFFIX}").write_bytes(header + b"".join(lines))
    return folder


async def refusal(folder: Path) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        await check_metadata(folder)
    return caught.value


async def test_bad_folders_are_refused(tmp_path: Path) -> None:
    assert isinstance(await refusal(tmp_path / "none"), NotFound)
    assert isinstance(await refusal(tmp_path), InputError)
    note = encode(Note("x", t=5.0))
    damaged = await refusal(history(tmp_path / "a", note, b"oops\n"))
    assert isinstance(damaged, Corruption)
    assert "oops" in str(damaged)
    assert isinstance(
        await refusal(history(tmp_path / "b", note, encode(Note("x", t=4.0)))), Corruption
    )
    contradiction = history(tmp_path / "c", encode(Done(1, Outcome.OK, t=1.0)))
    assert "without the call" in str(await refusal(contradiction))
    history(tmp_path / "d", note)
    mixed = await refusal(history(tmp_path / "d", note, name="other", run="s"))
    assert "several runs" in str(mixed)
    other = tmp_path / "e"
    other.mkdir()
    (other / f"c{SUFFIX}").write_bytes(b'{"format":"anabranch-metadata-history","version":9}\n')
    assert "version 9" in str(await refusal(other))


async def test_torn_tail_is_forgiven(tmp_path: Path) -> None:
    folder = history(tmp_path / "a", encode(Note("x", t=5.0)), b'{"k":"ca')
    assert (await check_metadata(folder)).status is Status.INCOMPLETE


async def run(url: str, folder: Path) -> MetadataVerdict:
    load = MetadataLoad(prefix="/run", keys=5, rate=2000.0, watch_s=5.0)
    return await run_metadata(
        url, real_runtime(), load, folder,
        run="r", clients=3, duration_s=0.6, stop=asyncio.Event(), on_progress=lambda *_: None,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "embedded"])
async def test_good_store_is_clean(kind: str, tmp_path: Path) -> None:
    url = "memory:" if kind == "memory" else f"embedded:{tmp_path / 'store'}"
    verdict = await run(url, tmp_path / "history")
    assert verdict.status is Status.CLEAN, verdict.as_text()
    assert verdict.counts["acknowledged"] > 20
    assert verdict.counts["refused"] > 0
    if kind == "embedded":
        store = await open_store(url, real_runtime())
        assert (await check_metadata(tmp_path / "history", store=store)).status is Status.CLEAN
        await store.put("/run/k0", b"forged")
        forged = await check_metadata(tmp_path / "history", store=store)
        assert "phantom" in {name for name, n in forged.violations.items() if n}
        await store.close()


def forgetting(store: MetadataStore) -> None:
    """Answer every third put without keeping it."""
    put: Callable[..., object] = store.put
    count = 0

    async def forgetful(path: str, value: bytes, *rest: object, **more: object) -> object:
        nonlocal count
        count += 1
        stat = await put(path, value, *rest, **more)  # type: ignore[misc]
        if count % 3 == 0 and path != "/run":
            await store.delete(stat.path)
        return stat

    store.put = forgetful  # type: ignore[method-assign,assignment]


async def test_store_that_forgets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_bad(url: str, runtime: object) -> MetadataStore:
        store = await open_store(url, real_runtime())
        forgetting(store)
        return store

    monkeypatch.setattr("anabranch.verify.metadata_check.open_store", open_bad)
    verdict = await run("memory:", tmp_path / "history")
    assert verdict.status is Status.VIOLATED
    assert verdict.violations["lost"] + verdict.violations["stale read"] > 0


def test_commands_judge_and_refuse(tmp_path: Path) -> None:
    folder, store = tmp_path / "history", tmp_path / "store"
    options = ["--duration", "0.3", "--rate", "500", "--history", str(folder), "--output", "json"]
    result = CliRunner().invoke(
        app, ["verify", "metadata", "run", "--url", f"embedded:{store}", *options]
    )
    assert result.exit_code == 0, result.output
    verdict = json.loads(result.stdout)
    assert (verdict["format"], verdict["version"]) == ("anabranch-metadata-verdict", 1)
    checked = CliRunner().invoke(
        app, ["verify", "metadata", "check", str(folder), "--url", f"embedded:{store}"]
    )
    assert checked.exit_code == 0, checked.output
    assert "verdict: clean" in checked.stdout
    again = CliRunner().invoke(
        app, ["verify", "metadata", "run", "--url", "memory:", "--history", str(folder)]
    )
    assert again.exit_code == 2
    assert "is not empty" in again.output
    unknown = CliRunner().invoke(app, ["verify", "metadata", "run", "--url", "nonsense:"])
    assert unknown.exit_code == 2
    assert "unknown metadata store" in unknown.output
