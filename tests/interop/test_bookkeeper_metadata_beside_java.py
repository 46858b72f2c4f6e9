"""Ledgers, bookies and ids of a real BookKeeper: what its client made is read, and the reverse."""

import asyncio
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from anabranch.errors import Corruption
from anabranch.ledgers.bookkeeper.bookies import Bookies
from anabranch.ledgers.bookkeeper.digests import DigestType, PacketDigest
from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    encode_metadata,
)
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.metadata.counters import numbering_of
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.contracts.coordination import until
from anabranch.testing.servers import bookkeeper, free_port, oxia, set_up_cluster, zookeeper
from anabranch.testing.servers.bookkeeper import BookKeeper
from anabranch.testing.servers.pulsar import java_command

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).with_name("BookKeeperLedgers.java")
BOOKIES = 2
MADE_TOGETHER = 40
ENTRIES = [b"first", b"", bytes(100_000)]
JAVA_NAMES = {"MAC": DigestType.HMAC}
SESSION_MS = 4000


@dataclass(frozen=True)
class JavaLedgers:
    """What Java's client made, and which ids were drawn here at the same time."""

    by_digest: dict[DigestType, int]
    open_id: int
    made: list[int]
    drawn_before: int
    drawn_meanwhile: list[int]
    drawn_after: int


@dataclass(frozen=True)
class Cluster:
    url: str
    storage: BookKeeper
    java: JavaLedgers


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[MetadataStore]:
    store = await open_store(url, real_runtime())
    try:
        yield store
    finally:
        await store.close()


async def make_ledgers(url: str, bookies: int, folder: Path) -> JavaLedgers:
    command = java_command(folder, "-Xmx256m", main=str(PROGRAM))
    async with opened(url) as store:
        ids = SharedLedgerIds(store, real_runtime(), numbering=numbering_of(url))
        before = await ids.next()
        program = await asyncio.create_subprocess_exec(
            *command,
            f"metadata-store:{url}",
            str(bookies),
            str(MADE_TOGETHER),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            said = await lines_until(program, "ready")
            drawing = asyncio.gather(*(ids.next() for _ in range(MADE_TOGETHER)))
            said += await lines_until(program, "done")
            meanwhile = await drawing
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()
        after = await ids.next()
    ledgers = [line[1:] for line in said if line[0] == "ledger"]
    return JavaLedgers(
        {JAVA_NAMES.get(name) or DigestType[name]: int(number) for name, number in ledgers},
        next(int(line[1]) for line in said if line[0] == "open"),
        [int(line[1]) for line in said if line[0] == "made"],
        before,
        list(meanwhile),
        after,
    )


async def lines_until(program: asyncio.subprocess.Process, last: str) -> list[list[str]]:
    assert program.stdout is not None
    lines: list[list[str]] = []
    async with asyncio.timeout(120):
        async for line in program.stdout:
            words = line.decode().split()
            if words and words[0] in ("ledger", "open", "made", "ready", "done"):
                lines.append(words)
            if words == [last]:
                return lines
    raise AssertionError(f"the Java client ended before it was {last}: {lines}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("java")
    timeout = {"zkTimeout": str(SESSION_MS)}
    with zookeeper() as metadata:
        set_up_cluster(metadata.url, port=free_port(), web_port=free_port())
        with bookkeeper(metadata.url, BOOKIES, settings=timeout) as storage:
            made = asyncio.run(make_ledgers(metadata.url, BOOKIES, folder))
            yield Cluster(metadata.url, storage, made)


def stored_packet(port: int, ledger_id: int, entry_id: int) -> bytes:
    """An entry as a bookie keeps it, by the oldest way to ask for one."""
    request = struct.pack(">iqq", 2 << 24 | 2 << 16, ledger_id, entry_id)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as bookie:
        bookie.sendall(struct.pack(">i", len(request)) + request)
        answer = bookie.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        body = answer.read(size)
    _, code, found_ledger, found_entry = struct.unpack_from(">iiqq", body)
    assert (code, found_ledger, found_entry) == (0, ledger_id, entry_id)
    return body[24:]


def ids_given_twice(java: JavaLedgers) -> list[int]:
    """Those that more than one ledger has, or that were drawn for one that has another."""
    theirs = [*java.by_digest.values(), java.open_id, *java.made]
    drawn = [java.drawn_before, *java.drawn_meanwhile, java.drawn_after]
    given = Counter([*theirs, *drawn])
    return [ledger_id for ledger_id, times in given.items() if times > 1]


def ids_rise(java: JavaLedgers) -> bool:
    """Whether what was drawn by us before and after theirs is below and above them."""
    theirs = [*java.by_digest.values(), java.open_id, *java.made]
    return java.drawn_before < min(theirs) <= max(theirs) < java.drawn_after


@pytest.mark.goal("core.L13", part="shared with Pulsar")
def test_nobody_gets_an_id_that_java_has(cluster: Cluster) -> None:
    assert len(cluster.java.made) == MADE_TOGETHER
    assert ids_given_twice(cluster.java) == []
    assert ids_rise(cluster.java)


@pytest.mark.goal("core.L5", part="digests")
@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_entries_of_java_are_checked_with_each_digest(
    cluster: Cluster, digest_type: DigestType
) -> None:
    ledger_id = cluster.java.by_digest[digest_type]
    async with opened(cluster.url) as store:
        found = (await (await LedgerRegistry.open(store, real_runtime())).read(ledger_id)).metadata
    assert found.digest is digest_type
    digest = PacketDigest(found.digest, found.password)
    for port in cluster.storage.ports:
        length = 0
        for entry_id, payload in enumerate(ENTRIES):
            data = stored_packet(port, ledger_id, entry_id)
            packet = digest.open_packet(data, ledger_id, entry_id)
            length += len(payload)
            assert packet.payload == payload
            assert packet.length == length
            assert -1 <= packet.last_confirmed < entry_id
            again = digest.header_and_digest(
                ledger_id, entry_id, packet.last_confirmed, length, payload
            )
            assert again + payload == data
            if digest_type is not DigestType.DUMMY:
                with pytest.raises(Corruption):
                    digest.open_packet(data[:-1] + b"?", ledger_id, entry_id)
    assert (found.last_entry_id, found.length) == (len(ENTRIES) - 1, length)


@pytest.mark.goal("core.L5", part="ledger metadata")
async def test_metadata_of_java_are_read_and_written_alike(cluster: Cluster) -> None:
    java = cluster.java
    bookies = {f"127.0.0.1:{port}" for port in cluster.storage.ports}
    async with opened(cluster.url) as store:
        registry = await LedgerRegistry.open(store, real_runtime())
        for ledger_id in [*java.by_digest.values(), java.open_id, *java.made]:
            node = await store.get(registry.paths.ledger(ledger_id))
            assert node is not None
            found = (await registry.read(ledger_id)).metadata
            assert encode_metadata(found) == node.value
            assert found.password == b"passwd"
            assert found.custom_metadata == {"application": b"java"}
            assert (found.ensemble_size, found.write_quorum, found.ack_quorum) == (2, 2, 1)
            (segment,) = found.segments
            assert (segment.first_entry_id, set(segment.bookies)) == (0, bookies)
            closed = ledger_id in java.by_digest.values()
            assert found.state is (State.CLOSED if closed else State.OPEN)
        listed = [ledger_id async for ledger_id in registry.list()]
    assert listed == sorted([*java.by_digest.values(), java.open_id, *java.made])


@pytest.mark.goal("core.L5", part="ledger metadata")
async def test_metadata_of_ours_are_shown_by_bookkeepers_shell(cluster: Cluster) -> None:
    first, second = (f"127.0.0.1:{port}" for port in cluster.storage.ports)
    async with opened(cluster.url) as store:
        ids = SharedLedgerIds(store, real_runtime(), numbering=numbering_of(cluster.url))
        registry = await LedgerRegistry.open(store, real_runtime())
        made = await registry.create(
            LedgerMetadata(
                ledger_id=await ids.next(),
                ensemble_size=1,
                write_quorum=1,
                ack_quorum=1,
                state=State.OPEN,
                last_entry_id=-1,
                length=0,
                digest=DigestType.CRC32C,
                password=b"",
                segments=(EnsembleSegment(0, (first,)),),
                custom_metadata={"made-by": b"us"},
                ctoken=registry.new_token(),
            )
        )
        closed = replace(
            made.metadata,
            state=State.CLOSED,
            last_entry_id=41,
            length=4242,
            segments=(*made.metadata.segments, EnsembleSegment(12, (second,))),
        )
        await registry.replace(closed, made.version)
        number = str(closed.ledger_id)
        shown = await asyncio.to_thread(
            cluster.storage.shell, "ledgermetadata", "-ledgerid", number
        )
        await registry.delete(closed.ledger_id)
    for part in ("state=CLOSED", "lastEntryId=41", "length=4242", "digestType=CRC32C", "made-by"):
        assert part in shown, shown
    assert f"0=[{first}]" in shown
    assert f"12=[{second}]" in shown


@pytest.mark.goal("core.L5", part="registrations")
async def test_bookies_are_found_lost_and_found_again(cluster: Cluster) -> None:
    ports = cluster.storage.ports
    names = tuple(sorted(f"127.0.0.1:{port}" for port in ports))
    failures: list[BaseException] = []
    tasks = Tasks(lambda _name, failure: failures.append(failure))
    async with opened(cluster.url) as store:
        bookies = Bookies(store, real_runtime(), LedgerPaths())
        await bookies.start(tasks)
        assert bookies.writable() == names
        assert bookies.read_only() == ()
        assert [bookies.address(name).port for name in names] == sorted(ports)
        victim = cluster.storage.members[0]
        victim.kill()
        await until(lambda: bookies.writable() == (f"127.0.0.1:{ports[1]}",))
        assert bookies.address(f"127.0.0.1:{ports[0]}").port == ports[0]
        await asyncio.to_thread(victim.start)
        await until(lambda: bookies.writable() == names)
        giving = {"forceReadOnlyBookie": "true", "zkTimeout": str(SESSION_MS)}
        with bookkeeper(cluster.url, 1, settings=giving) as another:
            await until(lambda: bookies.read_only() == (f"127.0.0.1:{another.ports[0]}",))
            assert bookies.writable() == names
        assert bookies.faults == {}
        await tasks.close()
    assert failures == []


@pytest.mark.goal("core.L13", part="shared with Pulsar")
def test_on_oxia_too_ledgers_and_ids_are_shared_with_java(tmp_path: Path) -> None:
    with oxia() as metadata:
        set_up_cluster(metadata.url, port=free_port(), web_port=free_port())
        with bookkeeper(metadata.url, 1) as storage:
            java = asyncio.run(make_ledgers(metadata.url, 1, tmp_path))
            assert len(java.made) == MADE_TOGETHER
            assert ids_given_twice(java) == []
            assert ids_rise(java)
            asyncio.run(check_oxia(metadata.url, storage, java))


async def check_oxia(url: str, storage: BookKeeper, java: JavaLedgers) -> None:
    failures: list[BaseException] = []
    tasks = Tasks(lambda _name, failure: failures.append(failure))
    async with opened(url) as store:
        registry = await LedgerRegistry.open(store, real_runtime())
        theirs = sorted([*java.by_digest.values(), java.open_id, *java.made])
        assert [ledger_id async for ledger_id in registry.list()] == theirs
        for ledger_id in theirs:
            node = await store.get(registry.paths.ledger(ledger_id))
            assert node is not None
            assert encode_metadata((await registry.read(ledger_id)).metadata) == node.value
        bookies = Bookies(store, real_runtime(), LedgerPaths())
        await bookies.start(tasks)
        assert bookies.writable() == (f"127.0.0.1:{storage.ports[0]}",)
        await tasks.close()
    assert failures == []
