"""Our ledgers on real bookies that are killed, and that BookKeeper's own shell works on too."""

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest

from anabranch.errors import Fenced
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerState
from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.ledger_writer import payload_of
from anabranch.testing.servers import Member, bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.servers.bookkeeper import BookKeeper
from anabranch.testing.servers.pulsar import java_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
PAUSE_S_MAX = 2.0
PROGRAM = Path(__file__).with_name("LedgersOfBoth.java")
_ids = count(1000)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, BookKeeper]]:
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        settings = {"nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX)}
        with bookkeeper(ensemble.url, 4, settings=settings) as bookies:
            yield ensemble.url, bookies


@pytest.fixture
def bookies(servers: tuple[str, BookKeeper]) -> BookKeeper:
    return servers[1]


@pytest.fixture
async def metadata(servers: tuple[str, BookKeeper]) -> AsyncIterator[MetadataStore]:
    metadata = await open_store(servers[0], real_runtime())
    yield metadata
    await metadata.close()


@pytest.fixture
async def store(metadata: MetadataStore) -> AsyncIterator[BookKeeperLedgerStore]:
    store = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, BookKeeperSettings())
    await registered(store, 4)
    yield store
    await store.close()


async def ensemble_of(store: BookKeeperLedgerStore, ledger_id: int) -> tuple[str, ...]:
    return (await store.cluster.registry.read(ledger_id)).metadata.segments[-1].bookies


def member_of(bookies: BookKeeper, bookie: str) -> Member:
    return bookies.members[bookies.ports.index(int(bookie.rpartition(":")[2]))]


@pytest.mark.goal("core.L3", part="real bookies")
async def test_killed_bookies_are_replaced_or_done_without(
    store: BookKeeperLedgerStore, metadata: MetadataStore, bookies: BookKeeper
) -> None:
    """First one of four is killed, then one of the three that are left."""
    ledger_id = next(_ids)
    writer = await store.create(ledger_id)
    first = await ensemble_of(store, ledger_id)
    victims = [member_of(bookies, first[0]), member_of(bookies, first[1])]
    results: list[Exception | None] = []
    completed_s: list[float] = []

    def done(_: int, error: Exception | None) -> None:
        results.append(error)
        completed_s.append(time.monotonic())

    written: list[bytes] = []
    started_s = time.monotonic()
    kills_s = [1.0, 4.0]
    while time.monotonic() - started_s < 7.0:
        if kills_s and time.monotonic() - started_s > kills_s[0]:
            kills_s.pop(0)
            victims[-1 - len(kills_s)].kill()
        for _ in range(10):
            written.append(b"%d" % len(written) * 100)
            writer.append(written[-1], done)
        await asyncio.sleep(0.01)
    assert await writer.close() == len(written) - 1
    assert results == [None] * len(written), "no append fails"
    longest_s = max(after - before for before, after in pairwise(completed_s))
    print(f"the longest pause was {longest_s:.3f} s")
    assert longest_s <= PAUSE_S_MAX
    segments = (await store.cluster.registry.read(ledger_id)).metadata.segments
    assert len(segments) >= 2
    other = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, BookKeeperSettings())
    assert await payloads_of(await other.open(ledger_id)) == written
    await other.close()
    for victim in victims:
        victim.start()


@pytest.mark.goal("core.L4", part="real bookies")
async def test_a_writer_that_was_paused_is_fenced_and_nothing_acknowledged_is_lost(
    store: BookKeeperLedgerStore, metadata: MetadataStore
) -> None:
    ledger_id = next(_ids)
    old = await store.create(ledger_id)
    await append(old, *(b"%d" % number for number in range(100)))
    other = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, BookKeeperSettings())
    reader = await other.open(ledger_id)
    assert await payloads_of(reader) == [b"%d" % number for number in range(100)]
    with pytest.raises(Fenced):
        await append(old, b"late")
    with pytest.raises(Fenced):
        await old.close()
    assert (await other.describe(ledger_id)).last_entry_id == 99
    await other.close()


def dumped(shown: str) -> dict[int, bytes]:
    """The entries that the shell has printed as hexadecimal, sixteen bytes a line, by their id."""
    found: dict[int, bytes] = {}
    entry_id = -1
    for line in shown.splitlines():
        if (named := re.search(r"Entry \{entryId=(\d+)", line)) is not None:
            entry_id = int(named[1])
            found[entry_id] = b""
        elif (row := re.match(r"[0-9A-F]{8} ((?:[0-9A-F]{2} ){1,16})", line)) is not None:
            found[entry_id] += bytes.fromhex(row[1])
    return found


@pytest.mark.goal("core.L5", part="shell reads ours")
async def test_the_shell_reads_our_entries(
    store: BookKeeperLedgerStore, bookies: BookKeeper
) -> None:
    """Byte for byte: of every length up to some lines of a dump, and with every byte there is."""
    ledger_id = next(_ids)
    writer = await store.create(ledger_id, custom_metadata={"application": b"anabranch"})
    payloads = [bytes((number + at) % 256 for at in range(number * 7)) for number in range(40)]
    payloads[0] = bytes(range(256)) * 4
    await append(writer, *payloads)
    await writer.close()
    words = ["-entryformat", "hex", "readledger", "-l", str(ledger_id), "-fe", "0"]
    shown = await asyncio.to_thread(bookies.shell, *words, "-le", str(len(payloads) - 1), "-m")
    assert dumped(shown) == dict(enumerate(payloads))


@pytest.mark.goal("core.L4", part="real bookies")
async def test_a_process_that_was_stopped_is_fenced_when_it_goes_on(
    store: BookKeeperLedgerStore, servers: tuple[str, BookKeeper]
) -> None:
    ledger_id = next(_ids)
    words = [sys.executable, "-m", "anabranch.testing.ledger_writer"]
    process = await asyncio.create_subprocess_exec(
        *words, f"bookkeeper:{servers[0]}", str(ledger_id), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        acknowledged = 0
        while acknowledged < 2000:
            entry_id, said = (await process.stdout.readline()).split(maxsplit=1)
            assert (int(entry_id), said) == (acknowledged, b"None\n")
            acknowledged += 1
        process.send_signal(signal.SIGSTOP)
        reader = await store.open(ledger_id)
        process.send_signal(signal.SIGCONT)
        rest = (await asyncio.wait_for(process.stdout.read(), 60)).splitlines()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    refused = [line for line in rest if not line.endswith(b" None")]
    acknowledged += len(rest) - len(refused)
    assert refused, "it found out"
    assert all(b"Fenced" in line for line in refused)
    assert acknowledged <= reader.last_entry_id + 1, "what was acknowledged is there"
    kept = await payloads_of(reader)
    assert kept == [payload_of(number) for number in range(len(kept))]
    assert (await store.describe(ledger_id)).last_entry_id == reader.last_entry_id


@pytest.mark.goal("core.L5", part="shell recovers ours")
async def test_the_shell_fences_our_writer(
    store: BookKeeperLedgerStore, bookies: BookKeeper
) -> None:
    ledger_id = next(_ids)
    writer = await store.create(ledger_id)
    await append(writer, b"one", b"two", b"three")
    await asyncio.to_thread(
        bookies.shell, "readledger", "-l", str(ledger_id), "-fe", "0", "-le", "2", "-m", "-r"
    )
    with pytest.raises(Fenced):
        await append(writer, b"late")
    description = await store.describe(ledger_id)
    assert (description.state, description.last_entry_id) == (LedgerState.CLOSED, 2)
    assert description.length_bytes == len(b"onetwothree")


JAVA_NAMES = {
    "CRC32C": DigestType.CRC32C,
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}


@pytest.mark.goal("core.L5", part="Java client reads ours")
@pytest.mark.goal("core.L5", part="we read the Java client's")
@pytest.mark.goal("core.L4", part="real bookies")
async def test_the_java_client_and_we_read_each_others_ledgers(
    metadata: MetadataStore, servers: tuple[str, BookKeeper], tmp_path: Path
) -> None:
    ours: list[str] = []
    for name, digest in JAVA_NAMES.items():
        settings = BookKeeperSettings(digest=digest, password=b"secret")
        store = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, settings)
        await registered(store, 4)
        ledger_id = next(_ids)
        # Left open: whoever reads it has to recover it.
        await append(await store.create(ledger_id), *(b"ours %d" % n for n in range(20)))
        await store.close()
        ours.append(f"{name}={ledger_id}")
    command = java_command(tmp_path, "-Xmx256m", main=str(PROGRAM))
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, f"metadata-store:{servers[0]}", *ours],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    for name in JAVA_NAMES:
        read = [line[2] for line in lines if line[:2] == ["read", name]]
        assert read == [f"ours {number}" for number in range(20)], done.stderr
    theirs = {line[1]: int(line[2]) for line in lines if line[0] == "wrote"}
    assert set(theirs) == {*JAVA_NAMES, "OPEN"}, done.stderr
    store = await BookKeeperLedgerStore.open_cluster(
        real_runtime(), metadata, BookKeeperSettings(password=b"secret")
    )
    expected = [b"java %d" % number for number in range(20)]
    for ledger_id in theirs.values():
        assert await payloads_of(await store.open(ledger_id)) == expected
        description = await store.describe(ledger_id)
        assert description.length_bytes == sum(map(len, expected))
    await store.close()
