"""Bad input to `anabranch metadata` on a real ZooKeeper and a real Oxia.

Whatever is wrong is one clear line, an exit code, and nothing has changed on the server.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.metadata.transfer.file_format import BLOCK_HEAD_BYTES, FILE_START_BYTES
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import free_port, zookeeper
from anabranch.testing.servers.oxia import oxia

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.M8", part="tools"),
]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
KINDS = ["zookeeper", "oxia"]


@dataclass
class Servers:
    zookeeper: str
    oxia: str

    def url(self, kind: str) -> str:
        return self.zookeeper if kind == "zookeeper" else self.oxia


def begin(*words: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "anabranch", "metadata", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def done(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def run(*words: str | Path) -> str:
    code, out, err = done(begin(*words))
    assert code == 0, err
    return out


def refusal(process: "subprocess.Popen[str]", code: int = 2) -> str:
    """The one line that a command says before it ends with that code."""
    found, out, err = done(process)
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    return err


def digest(url: str) -> str:
    told = run("stat", "/", "--below", "--url", url)
    return "\n".join(line for line in told.splitlines() if line.startswith(("nodes", "exact")))


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with zookeeper() as ensemble, oxia(2) as server:
        found = Servers(f"{ensemble.url}/refusals", server.url)
        for kind in KINDS:
            run("put", "/kept/node", "--value", "kept", "--url", found.url(kind))
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_bad_paths_and_values_change_nothing(servers: Servers, kind: str, tmp_path: Path) -> None:
    url = servers.url(kind)
    before = digest(url)
    large = tmp_path / "large"
    large.write_bytes(b"x" * (1200 * 1024))
    refused = [
        (begin("put", "no/slash", "--value", "x", "--url", url), "starts with '/'"),
        (begin("put", "/a//b", "--value", "x", "--url", url), "no empty names"),
        (begin("put", "/a/\x01", "--value", "x", "--url", url), "no control"),
        (begin("put", "/large", "--file", large, "--url", url), "bytes"),
        (begin("ls", "/a/", "--url", url), "does not end with '/'"),
    ]
    if kind == "zookeeper":
        hidden = begin("put", "/a/.anabranch-x", "--value", "x", "--url", url)
        refused.append((hidden, "reserved"))
    for process, said in refused:
        assert said in refusal(process)
    assert digest(url) == before


def test_looking_makes_no_chroot(servers: Servers, tmp_path: Path) -> None:
    typo = f"{servers.zookeeper}-typo/x"
    top = servers.zookeeper.rpartition("/")[0]
    looking = [
        begin("ls", "--url", typo),
        begin("stat", "--below", "--url", typo),
        begin("export", tmp_path / "none", "--url", typo),
        begin("diff", typo, servers.zookeeper),
        begin("put", "/a", "--value", "x", "--dry-run", "--url", typo),
    ]
    for process in looking:
        assert "there is no node /refusals-typo/x in ZooKeeper" in refusal(process, 1)
    assert "dry run" in run("copy", servers.oxia, typo, "--dry-run")
    assert not (tmp_path / "none").exists()
    assert run("ls", "/", "--url", top) == "refusals\n"


def test_a_scheme_that_nobody_speaks_is_named(servers: Servers, tmp_path: Path) -> None:
    wrong = "zookeeper://127.0.0.1:2181"
    file = tmp_path / "none"
    processes = [
        begin("put", "/a", "--value", "x", "--url", wrong),
        begin("export", file, "--url", wrong),
        *(begin("copy", servers.url(kind), wrong) for kind in KINDS),
        *(begin("copy", wrong, servers.url(kind)) for kind in KINDS),
    ]
    before = [digest(servers.url(kind)) for kind in KINDS]
    for process in processes:
        assert "zookeeper:" in refusal(process)
    assert [digest(servers.url(kind)) for kind in KINDS] == before
    assert not file.exists()


def test_nobody_there_is_one_line_with_the_address() -> None:
    ports = free_port(), free_port()
    nobody = [f"zk:127.0.0.1:{ports[0]}", f"oxia://127.0.0.1:{ports[1]}/default", "zk:no.invalid"]
    processes = [begin("ls", "--url", url) for url in nobody]
    for process, name in zip(
        processes, [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", "no.invalid"], strict=True
    ):
        assert name in refusal(process)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_changes_nothing(servers: Servers, kind: str, tmp_path: Path) -> None:
    url = servers.url(kind)
    before = digest(url)
    file = tmp_path / "export"
    run("export", file, "--url", url, "--prefix", "/kept")
    whole = file.read_bytes()
    nodes_at = FILE_START_BYTES + BLOCK_HEAD_BYTES + 80
    regions = {"magic": 1, "version": 10, "header": FILE_START_BYTES + 20, "nodes": nodes_at}
    regions |= {"end": len(whole) - 40, "last": len(whole) - 1}
    processes = []
    for name, place in regions.items():
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        (tmp_path / name).write_bytes(damaged)
        processes.append(begin("restore", tmp_path / name, "--url", url, "--overwrite"))
    (tmp_path / "cut").write_bytes(whole[:-30])
    processes.append(begin("restore", tmp_path / "cut", "--url", url, "--overwrite"))
    if kind == "zookeeper":
        processes.append(begin("restore", tmp_path / "nodes", "--url", f"{url}-new/x"))
    for process in processes:
        refusal(process)
    assert digest(url) == before
    top = servers.zookeeper.rpartition("/")[0]
    assert run("ls", "/", "--url", top) == "refusals\n", "a chroot was made for nothing"


def test_rights_that_the_target_cannot_hold_are_not_dropped_silently(
    servers: Servers, tmp_path: Path
) -> None:
    async def lock() -> None:
        store = await ZooKeeperStore.open(real_runtime(), servers.zookeeper)
        await store.put("/locked/node", b"x")
        await store.client.set_acl(
            "/locked/node", [Acl(31, "world", "anyone"), Acl(1, "ip", "::1")]
        )
        await store.close()

    asyncio.run(lock())
    before = digest(servers.oxia)
    words = ("copy", servers.zookeeper, servers.oxia, "--prefix", "/locked")
    said = refusal(begin(*words))
    assert "/locked/node" in said
    assert "--drop-acls" in said
    assert digest(servers.oxia) == before
    run(*words, "--drop-acls", "--version-map", tmp_path / "map")
    shown = done(begin("diff", servers.zookeeper, servers.oxia, "--prefix", "/locked"))
    assert shown[:2] == (1, "differs     /locked/node  (access)\n"), "the rule knows all the rest"
    assert run("get", "/locked/node", "--url", servers.oxia) == "x\n"
