"""Ledgers of bookies that BookKeeper's own driver of ZooKeeper laid out, not Pulsar's."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.counters import numbering_of
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, ids_of, payloads_of
from anabranch.testing.servers import bookkeeper, zookeeper
from anabranch.testing.servers.bookkeeper import SHELL_CLASS, BookKeeper
from anabranch.testing.servers.java_programs import said_by
from anabranch.testing.servers.pulsar import java_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
SHORT, LONG = 7, 2**31 + 5
JAVA_ENTRIES = [b"first", b"", bytes(100_000)]
PROGRAM = Path(__file__).with_name("BookKeeperLedgers.java")


@dataclass(frozen=True)
class Cluster:
    """Bookies below a root of their own."""

    url: str
    uri: str
    layout: str
    bookies: BookKeeper


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.servers


@pytest.fixture(params=["hierarchical", "longhierarchical"])
def cluster(request: pytest.FixtureRequest, servers: str, tmp_path: Path) -> Iterator[Cluster]:
    layout: str = request.param
    uri = f"zk+{layout}://{servers}/{layout}"
    conf = tmp_path / "shell.conf"
    conf.write_text(f"metadataServiceUri={uri}\n")
    shell = java_command(tmp_path, "-Xmx256m", main=SHELL_CLASS)
    command = [*shell, "-conf", str(conf), "initnewcluster"]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    with bookkeeper("", 1, settings={"metadataServiceUri": uri}) as bookies:
        yield Cluster(f"zk:{servers}", uri, layout, bookies)


@pytest.mark.goal("core.L5", part="ledger metadata")
async def test_both_find_the_ledgers_of_the_other(cluster: Cluster) -> None:
    runtime = real_runtime()
    metadata = await open_store(cluster.url, runtime)
    settings = BookKeeperSettings(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        password=b"passwd",
        ledgers_root=f"/{cluster.layout}",
    )
    store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
    await registered(store, 1)
    for ledger_id in (SHORT, LONG):
        writer = await store.create(ledger_id)
        await append(writer, b"entry of %d" % ledger_id)
        await writer.close()

    def shell(*words: str) -> str:
        return cluster.bookies.shell(*words)

    listed = await asyncio.to_thread(shell, "listledgers")
    assert {int(found) for found in re.findall(r"ledgerId=(\d+)", listed)} == {SHORT, LONG}
    for ledger_id in (SHORT, LONG):
        read = ("readledger", "-l", str(ledger_id), "-fe", "0", "-le", "0", "-m")
        shown = await asyncio.to_thread(shell, "-entryformat", "string", *read)
        assert f"entry of {ledger_id}" in shown
    said = await asyncio.to_thread(said_by, PROGRAM, cluster.uri, "1", "0")
    theirs = [int(line.split()[2]) for line in said if line.startswith("ledger ")]
    (left_open,) = (int(line.split()[1]) for line in said if line.startswith("open "))
    assert await ids_of(store) == sorted([SHORT, LONG, *theirs, left_open])
    for ledger_id in theirs:
        assert await payloads_of(await store.open(ledger_id)) == JAVA_ENTRIES
    numbering, paths = numbering_of(cluster.url), store.cluster.registry.paths
    ids = SharedLedgerIds(metadata, runtime, numbering=numbering, paths=paths)
    assert await ids.next() > left_open, "both draw from the same generator"
    await store.close()
    await metadata.close()
