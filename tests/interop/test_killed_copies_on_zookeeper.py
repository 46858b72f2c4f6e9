"""Copies with access rights into a real ZooKeeper, as processes that are killed or interrupted."""

import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.export_file import write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.servers import zookeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.M13", part="zookeeper"),
]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
METADATA = (sys.executable, "-m", "anabranch", "metadata")
NODES = 3000
SLOWLY = ("--rate", "100")
HASH = base64.b64encode(hashlib.sha1(b"owner:0wned").digest()).decode()
RIGHTS = (AccessRight(31, "digest", f"owner:{HASH}"), AccessRight(1, "world", "anyone"))
OPEN = "are open still to who wrote them"
_places = count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.url


@pytest.fixture
def url(servers: str) -> str:
    return f"{servers}/killed-{next(_places)}"


@pytest.fixture
def export(tmp_path: Path) -> str:
    records = [Record("/", b"", 0, 1, 1), Record("/many", b"", 0, 1, 1, access=RIGHTS)]
    records += [Record(f"/many/{i:05}", b"x", 0, 1, 1, access=RIGHTS) for i in range(NODES)]
    file = f"{tmp_path}/many"
    header = ExportHeader("memory:", "/", 1)
    asyncio.run(write_export(real_runtime().disk, file, header, each(records)))
    return f"file:{file}"


def credentials(folder: Path, user: str) -> str:
    """The file of somebody by name."""
    file = folder / f"{user}.toml"
    file.write_text(
        'format = "anabranch.metadata-credentials"\nversion = 1\n[[zookeeper.identity]]\n'
        f'scheme = "digest"\nuser = "{user}"\npassword = "secret of {user}"\n'
    )
    file.chmod(0o600)
    return str(file)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*METADATA, *words],
        check=False, capture_output=True, text=True, timeout=120, env=ENVIRONMENT,
    )  # fmt: skip


def cut_off(url: str, words: tuple[str, ...], how: signal.Signals) -> tuple[int, str]:
    """Begin a copy, end it when some nodes are there; its exit code and what it said."""
    copying = subprocess.Popen(
        [*METADATA, "copy", *words, *SLOWLY],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while asyncio.run(nodes_in(url)) < 20 and time.monotonic() < deadline:
            time.sleep(0.1)
        copying.send_signal(how)
        _, said = copying.communicate(timeout=60)
    finally:
        copying.kill()
        copying.wait()
    assert asyncio.run(nodes_in(url)) < NODES, "it was not done"
    return copying.returncode, said


async def nodes_in(url: str) -> int:
    store = await ZooKeeperStore.open(real_runtime(), url)
    try:
        return len(await store.children("/many"))
    finally:
        await store.close()


async def let_in(url: str) -> bool:
    """Whether anybody at all may write to what was copied."""
    store = await ZooKeeperStore.open(real_runtime(), url)
    try:
        await store.put("/many/00003", b"by a stranger")
    except InputError:  # its rights do not allow it
        return False
    finally:
        await store.close()
    return True


def open_copies(url: str) -> list[str]:
    found = command("stat", "/many", "--url", url, "--output", "json")
    assert found.returncode == 0, found.stderr
    told: list[str] = json.loads(found.stdout)["open_copies"]
    assert all(sentence in found.stderr for sentence in told), "it is said aloud as well"
    return told


def test_killed_copy_is_told_of_and_closed_by_the_next(url: str, export: str) -> None:
    cut_off(url, (export, url), signal.SIGKILL)
    assert asyncio.run(let_in(url)), "this is what it is about"
    (sentence,) = open_copies(url)
    assert export in sentence
    again = command("copy", export, url)
    assert (again.returncode, "the target has" in again.stderr) == (1, True), again.stderr
    assert not asyncio.run(let_in(url))
    assert open_copies(url) == []


def test_copy_of_somebody_else_is_not_gone_on_with(url: str, export: str, tmp_path: Path) -> None:
    words = (export, url, "--checkpoint", f"{tmp_path}/checkpoint")
    mine = (*words, "--credentials", credentials(tmp_path, "me"))
    cut_off(url, mine, signal.SIGKILL)
    assert not asyncio.run(let_in(url)), "it is open to nobody else meanwhile"
    for others in (words, (*words, "--credentials", credentials(tmp_path, "eve"))):
        refused = command("copy", *others)
        assert refused.returncode == 2, refused.stderr
        assert "begun by somebody else" in refused.stderr
    done = command("copy", *mine, "--output", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["verified"], report["nodes"]) == (True, NODES + 2)
    assert open_copies(url) == []


def test_interrupted_copy_closes_or_says_that_it_is_open(
    url: str, export: str, tmp_path: Path
) -> None:
    code, said = cut_off(url, (export, url), signal.SIGINT)
    assert (code, OPEN in said) == (130, False), said
    assert not asyncio.run(let_in(url))
    assert open_copies(url) == []
    url = f"{url}-again"
    code, said = cut_off(
        url, (export, url, "--checkpoint", f"{tmp_path}/checkpoint"), signal.SIGINT
    )
    assert (code, OPEN in said) == (130, True), said
    assert len(open_copies(url)) == 1


def test_scheme_that_the_server_has_not_is_refused_first(url: str, tmp_path: Path) -> None:
    records = [
        Record("/a", b"", 0, 1, 1, access=RIGHTS),
        Record("/b", b"", 0, 1, 1, access=(AccessRight(31, "sasl", "bob"),)),
    ]
    file = f"{tmp_path}/sasl"
    header = ExportHeader("memory:", "/", 1)
    asyncio.run(write_export(real_runtime().disk, file, header, each(records)))
    for more in ((), ("--dry-run",)):
        asyncio.run(nodes_in(url))  # a dry run makes no chroot to ask in
        refused = command("copy", f"file:{file}", url, *more)
        assert refused.returncode == 2, refused.stderr
        assert "/b: it has a right of the scheme 'sasl' (of 'bob')" in refused.stderr
        assert "authProvider" in refused.stderr
        left = command("ls", "/", "--url", url)
        assert (left.returncode, left.stdout) == (0, "")
