"""`anabranch metadata get|put|delete|ls|tree|stat|export|restore|copy|diff` on embedded stores."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from anabranch import limits
from anabranch.cli.main import app
from anabranch.cli.metadata_places import safe, time_text, value_text
from anabranch.errors import Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import AccessRight, IndexKey, Put, Record
from anabranch.metadata.transfer.export_file import write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.transfer.keeping import EVERYTHING
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each, records_of

BINARY = b"\x1b[31m\xff\x00"


def metadata(*words: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["metadata", *map(str, words)], input=stdin)


def refused(code: int, *words: str | Path) -> str:
    """The one line that a command says before it ends with a code."""
    result = metadata(*words)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def filled(folder: Path, operations: Sequence[Put]) -> str:
    """The URL of an embedded store with some nodes."""

    async def fill() -> None:
        store = await open_store(f"embedded:{folder}", real_runtime())
        await store.batch(operations)
        await store.close()

    asyncio.run(fill())
    return f"embedded:{folder}"


def content(url: str) -> list[Record]:
    async def look() -> list[Record]:
        store = await open_store(url, real_runtime())
        try:
            return await records_of(store)
        finally:
            await store.close()

    return asyncio.run(look())


@pytest.fixture
def url(tmp_path: Path) -> str:
    return filled(
        tmp_path / "store",
        [
            Put("/text", b"two\nlines"),
            Put("/binary", BINARY),
            Put("/a/b", b"1", indexes=(IndexKey("by", "k"),)),
            Put("/a/n-", b"2", sequential=True),
        ],
    )


# --- single nodes -----------------------------------------------------------------------------


def test_get_shows_values_safely(url: str) -> None:
    assert metadata("get", "/text", "--url", url).stdout == "two\nlines\n"
    assert metadata("get", "/binary", "--url", url).stdout == "\\x1b[31m\\xff\\x00\n"
    raw = metadata("get", "/binary", "--url", url, "--raw")
    assert raw.stdout_bytes == BINARY
    found = json.loads(metadata("get", "/binary", "--url", url, "--output", "json").stdout)
    assert (found["bytes"], found["value_base64"], found["native_version"]) == (
        7,
        "G1szMW3/AA==",
        0,
    )
    found = json.loads(metadata("get", "/text", "--url", url, "--output", "json").stdout)
    assert found["value"] == "two\nlines"
    assert refused(1, "get", "/none", "--url", url) == "error: no node at /none\n"


def test_url_may_come_from_the_environment(url: str) -> None:
    result = CliRunner().invoke(app, ["metadata", "ls", "/a"], env={"ANABRANCH_METADATA_URL": url})
    assert result.stdout == "b\nn-0000000000\n"


def test_put_from_every_place(url: str, tmp_path: Path) -> None:
    assert metadata("put", "/p", "--value", "ü", "--url", url).exit_code == 0
    assert metadata("get", "/p", "--url", url, "--raw").stdout_bytes == "ü".encode()
    (tmp_path / "value").write_bytes(BINARY)
    metadata("put", "/p", "--file", tmp_path / "value", "--url", url)
    assert metadata("get", "/p", "--url", url, "--raw").stdout_bytes == BINARY
    metadata("put", "/p", "--file", "-", "--url", url, stdin=b"\x00piped\n")
    assert metadata("get", "/p", "--url", url, "--raw").stdout_bytes == b"\x00piped\n"
    result = metadata("put", "/a/n-", "--value", "", "--sequential", "--url", url)
    assert result.stdout.startswith("/a/n-0000000001 has version ")
    for wrong in ((), ("--value", "x", "--file", "-")):
        assert "either --value or --file" in refused(2, "put", "/p", *wrong, "--url", url)
    said = refused(2, "put", "/p", "--file", "/none", "--url", url)
    assert said == "error: cannot read /none: No such file or directory\n"
    assert "cannot read" in refused(2, "put", "/p", "--file", tmp_path, "--url", url)


def test_expected_versions(url: str) -> None:
    first = metadata("put", "/v", "--value", "1", "--expected-version", "absent", "--url", url)
    token = first.stdout.split()[-1]
    assert "exists already" in refused(
        1, "put", "/v", "--value", "x", "--expected-version", "absent", "--url", url
    )
    done = metadata("put", "/v", "--value", "2", "--expected-version", token, "--url", url)
    assert done.exit_code == 0
    refused(1, "put", "/v", "--value", "x", "--expected-version", token, "--url", url)
    assert "expected 7, found 1" in refused(
        1, "put", "/v", "--value", "x", "--expected-version", "7", "--url", url
    )
    assert metadata("get", "/v", "--url", url).stdout == "2\n"
    assert "is not 'absent', a number" in refused(
        2, "put", "/v", "--value", "x", "--expected-version", "new", "--url", url
    )
    dry = metadata("put", "/v", "--value", "3", "--dry-run", "--url", url, "--output", "json")
    assert json.loads(dry.stdout) == {"path": "/v", "dry_run": True}
    assert metadata("get", "/v", "--url", url).stdout == "2\n"
    refused(1, "delete", "/v", "--expected-version", "0", "--url", url)
    done = metadata("delete", "/v", "--expected-version", "1", "--url", url)
    assert done.exit_code == 0


def test_put_keeps_indexes_unless_told_otherwise(url: str) -> None:
    metadata("put", "/a/b", "--value", "new", "--url", url)
    assert {r.path: r.indexes for r in content(url)}["/a/b"] == (IndexKey("by", "k"),)
    metadata("put", "/a/b", "--value", "new", "--index", "by=other", "--url", url)
    assert {r.path: r.indexes for r in content(url)}["/a/b"] == (IndexKey("by", "other"),)
    assert "is not NAME=KEY" in refused(
        2, "put", "/a/b", "--value", "", "--index", "x", "--url", url
    )


def test_delete(url: str) -> None:
    assert "/a has children" in refused(1, "delete", "/a", "--url", url)
    refused(1, "delete", "/none", "--url", url)
    assert "root" in refused(2, "delete", "/", "--url", url)
    dry = metadata("delete", "/a", "--recursive", "--dry-run", "--url", url)
    assert dry.stdout == "would delete 3 nodes\n"
    assert metadata("ls", "/a", "--url", url).stdout == "b\nn-0000000000\n"
    done = metadata("delete", "/a", "--recursive", "--url", url, "--output", "json")
    assert json.loads(done.stdout) == {"path": "/a", "deleted": 3, "dry_run": False}
    assert json.loads(metadata("ls", "--url", url, "--output", "json").stdout) == ["binary", "text"]


def test_tree_and_stat(url: str) -> None:
    assert metadata("tree", "--url", url, "--depth", "1").stdout == (
        "/  (0 bytes, version 0)\n"
        "  a  (0 bytes, version 0)\n"
        "  binary  (7 bytes, version 0)\n"
        "  text  (9 bytes, version 0)\n"
    )
    lines = metadata("tree", "/a", "--url", url, "--output", "json").stdout.splitlines()
    assert [json.loads(line)["path"] for line in lines] == ["/a", "/a/b", "/a/n-0000000000"]
    found = json.loads(metadata("stat", "/a", "--below", "--url", url, "--output", "json").stdout)
    assert (found["children"], found["nodes"], found["value_bytes"]) == (2, 3, 2)
    assert "content digest" in metadata("stat", "/a", "--below", "--url", url).stdout
    refused(1, "stat", "/none", "--url", url)
    refused(1, "tree", "/none", "--url", url)


def test_text_is_made_harmless() -> None:
    assert safe("a\x1b]0;x\x07ä") == "a\\x1b]0;x\\x07ä"
    assert value_text("a\tb\n\r\u202e".encode()) == "a\tb\n\\r\\u202e"
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(2**61) == str(2**61)


# --- whole trees ------------------------------------------------------------------------------


@pytest.mark.goal("core.M8", part="tools", broken_by="copy_loses_sequences")
def test_export_restore_and_diff(url: str, tmp_path: Path) -> None:
    file = tmp_path / "x.anabranch-metadata"
    done = metadata("export", file, "--url", url, "--output", "json")
    exported = json.loads(done.stdout)
    assert exported["nodes"] == 6
    other = f"embedded:{tmp_path}/other"
    dry = metadata("restore", file, "--url", other, "--dry-run", "--output", "json")
    assert json.loads(dry.stdout)["nodes"] == 6
    assert not (tmp_path / "other").exists()
    done = metadata("restore", file, "--url", other, "--output", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["verified"] is True
    assert json.loads(done.stdout)["exact_digest"] == exported["exact_digest"]
    assert content(other) == content(url)
    for left, right in ((url, other), (f"file:{file}", other), (url, f"file:{file}")):
        same = metadata("diff", left, right, "--times")
        assert (same.exit_code, same.stdout, same.stderr) == (0, "", "0 differences\n")
    metadata("put", "/text", "--value", "changed", "--url", other)
    metadata("put", "/z", "--value", "", "--url", other)
    differs = metadata("diff", url, other)
    assert differs.exit_code == 1
    assert differs.stdout == "differs     /text  (value, version)\nonly right  /z\n"
    part = metadata("diff", url, other, "--prefix", "/z")
    assert (part.exit_code, part.stdout) == (1, "only right  /z\n")
    lines = metadata("diff", url, other, "--output", "json").stdout.splitlines()
    assert json.loads(lines[0]) == {
        "kind": "differs", "path": "/text", "fields": ["value", "version"],
    }  # fmt: skip


def test_copy_refuses_and_overwrites(url: str, tmp_path: Path) -> None:
    other = filled(tmp_path / "other", [Put("/text", b"kept")])
    before = content(other)
    for words in (("--dry-run",), ()):
        assert "1 of these nodes already (/text)" in refused(1, "copy", url, other, *words)
        assert content(other) == before
    dry = metadata("copy", url, other, "--overwrite", "--dry-run", "--output", "json")
    assert json.loads(dry.stdout)["occupied"] == 1
    assert content(other) == before
    done = metadata("copy", url, other, "--overwrite", "--output", "json")
    assert json.loads(done.stdout)["overwritten"] == 1
    assert metadata("diff", url, other).exit_code == 0


def test_copy_of_a_part_and_with_a_limit(url: str, tmp_path: Path) -> None:
    other = f"embedded:{tmp_path}/other"
    done = metadata("copy", url, other, "--prefix", "/a", "--rate", "1000", "--bytes-rate", "1e6")
    assert done.exit_code == 0, done.output
    assert [record.path for record in content(other)] == ["/", "/a", "/a/b", "/a/n-0000000000"]
    assert "nothing at or below /none" in refused(1, "copy", url, other, "--prefix", "/none")


@pytest.mark.goal("core.M8", part="tools", broken_by="reports_leave_out_losses")
def test_copy_says_what_was_not_kept_and_not_done(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*words: str) -> list[str]:
        done = metadata("copy", url, *words)
        assert done.exit_code == 0, done.output
        return [line for line in done.stdout.splitlines() if line.startswith(("times", "veri"))]

    kept = lines(f"embedded:{tmp_path}/kept")
    assert kept == ["times kept       yes", "verified         yes"]
    # As if the target were in ZooKeeper or Oxia.
    poorer = replace(EVERYTHING, times=False)
    monkeypatch.setattr("anabranch.metadata.transfer.keeping.keeping_of", lambda _: poorer)
    no_times = "times kept       no: the target sets times itself, they are those of the copy"
    assert lines(f"embedded:{tmp_path}/lost", "--dry-run") == [no_times]
    lost = lines(f"embedded:{tmp_path}/lost", "--no-verify")
    assert lost == [no_times, "verified         no: the target was not read back and compared"]


# --- bad input --------------------------------------------------------------------------------


def test_version_map_that_is_there_is_not_replaced(url: str, tmp_path: Path) -> None:
    kept = tmp_path / "map.tsv"
    kept.write_text("of another copy")
    other = f"embedded:{tmp_path}/other"
    said = refused(2, "copy", url, other, "--version-map", kept)
    assert f"{kept} exists already" in said
    assert kept.read_text() == "of another copy"
    assert not (tmp_path / "other").exists()


def test_what_a_server_says_is_one_harmless_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(*_: object, **__: object) -> None:
        raise Unreachable("first\nsecond \x1b[2J")

    monkeypatch.setattr("anabranch.metadata.embedded.EmbeddedStore.open", hostile)
    assert refused(2, "ls", "--url", url) == "error: first\\nsecond \\x1b[2J\n"


def test_wrong_scheme_names_the_known_ones(url: str, tmp_path: Path) -> None:
    for words in (
        ("get", "/a", "--url", "etcd:host"),
        ("export", tmp_path / "x", "--url", "etcd:host"),
        ("copy", "etcd:host", url),
        ("copy", url, "etcd:host"),
        ("diff", url, "etcd:host"),
    ):
        said = refused(2, *words)
        assert "unknown metadata store 'etcd:host': known are 'memory:'" in said
        assert "'anabranch://" in said


def test_unreachable_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 1)
    monkeypatch.setattr("anabranch.cli.metadata_places._SESSION_TIMEOUT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    said = refused(2, "ls", "--url", f"anabranch://127.0.0.1:{port}")
    assert f"no metadata server at 127.0.0.1:{port}" in said


def test_bad_paths_and_large_values_change_nothing(url: str, tmp_path: Path) -> None:
    before = content(url)
    for path, said in (("a", "starts with '/'"), ("/a/", "does not end with '/'")):
        assert said in refused(2, "put", path, "--value", "", "--url", url)
        assert said in refused(2, "get", path, "--url", url)
        assert said in refused(2, "export", tmp_path / "x", "--prefix", path, "--url", url)
    large = tmp_path / "large"
    large.write_bytes(b"x" * (limits.METADATA_VALUE_BYTES_MAX + 5))
    for words in ((), ("--dry-run",)):
        said = refused(2, "put", "/p", "--file", large, "--url", url, *words)
        assert f"{large} is too large" in said, "by how much was not looked at"
        assert f"at most {limits.METADATA_VALUE_BYTES_MAX} bytes are allowed" in said
    assert content(url) == before
    assert not (tmp_path / "x").exists()


def test_no_store_is_made_by_looking(tmp_path: Path) -> None:
    assert "there is no metadata store in" in refused(2, "ls", "--url", f"embedded:{tmp_path}/no")
    assert list(tmp_path.iterdir()) == []
    filled(tmp_path / "data/metadata", [])
    said = refused(2, "ls", "--url", f"embedded:{tmp_path}/data")
    assert f"write embedded:{tmp_path}/data/metadata" in said


def test_store_in_use_is_refused(url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from anabranch.metadata.factory import open_store\n"
        "from anabranch.runtime.real import real_runtime\n"
        "async def main():\n"
        "    store = await open_store(sys.argv[1], real_runtime())\n"
        "    print('open', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert url.removeprefix("embedded:") in refused(1, "ls", "--url", url)
    finally:
        holder.communicate()


def test_damaged_export_is_named_with_its_place(url: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    metadata("export", file, "--url", url)
    whole = file.read_bytes()
    other = f"embedded:{tmp_path}/other"
    for place in range(0, len(whole), 37):  # every byte: see the tests of the format
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        file.write_bytes(damaged)
        said = refused(2, "restore", file, "--url", other)
        assert str(file) in said
    assert content(other) == content("memory:")


def test_access_rights_need_a_word(tmp_path: Path) -> None:
    file = tmp_path / "x"
    records = [
        Record("/", b"", 0, 1, 1),
        Record("/r", b"", 0, 1, 1, access=(AccessRight(1, "ip", "::1"),)),
    ]
    asyncio.run(
        write_export(real_runtime().disk, str(file), ExportHeader("zk:h", "/", 1), each(records))
    )
    other = f"embedded:{tmp_path}/other"
    for words in (("--dry-run",), ()):
        said = refused(2, "restore", file, "--url", other, *words)
        assert "1 nodes have access rights, which the target cannot hold" in said
    done = metadata("restore", file, "--url", other, "--drop-acls", "--output", "json")
    assert json.loads(done.stdout)["acls_dropped"] == 1


def test_missing_or_foreign_export_is_refused(url: str, tmp_path: Path) -> None:
    assert "there is no file" in refused(2, "restore", tmp_path / "none", "--url", url)
    (tmp_path / "x").write_text("hello, I am a text")
    assert "not a metadata export" in refused(2, "restore", tmp_path / "x", "--url", url)
    assert "exists already" in refused(2, "export", tmp_path / "x", "--url", url)
    assert "an export needs a name" in refused(2, "diff", "file:", url)
