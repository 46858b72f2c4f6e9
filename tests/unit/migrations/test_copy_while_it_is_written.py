"""A store is copied while it is written: nobody waits, all of it arrives, as fast as was asked."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from anabranch.metadata.store import IndexKey, MetadataStore, Record
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.converging import Converging
from anabranch.migrations.freeze_copy.limits import LAG_MAX
from anabranch.testing.staged_replacement import (
    SOURCE_URL,
    TARGET_URL,
    lasting,
    staged,
)

NODES = 200


@pytest.mark.goal("454.A8", part="writers", broken_by="copying_holds_writes")
async def test_writers_do_not_wait_for_a_copy_that_is_under_way() -> None:
    async with staged("ash", "birch") as stage:
        store = stage.members["birch"].store
        for number in range(NODES):
            await store.put(f"/some/{number:03d}", b"12345")
        await stage.reach("copying")
        trouble = stage.troubles[TARGET_URL]
        trouble.stops_after = NODES // 2
        stage.go_on()
        await trouble.stopped.wait()
        async with asyncio.timeout(20.0):
            for number in range(0, NODES, 2):
                await store.put(f"/some/{number:03d}", b"changed")
            await store.delete("/some/001")
        target = await stage.open_store(TARGET_URL)
        copied = await target.children("/some")
        assert 0 < len(copied) < NODES, "it was in the middle"
        trouble.goes_on.set()
        await stage.until("switched")
        source = await stage.open_store(SOURCE_URL)
        assert await lasting(target) == await lasting(source)
        await source.close()
        await target.close()


@pytest.mark.goal("454.A8", part="progress", broken_by="progress_is_not_shown")
async def test_a_status_says_how_much_of_the_copy_is_done() -> None:
    async with staged("ash") as stage:
        raw = await stage.open_store(SOURCE_URL)
        await raw.restore(records(*(Record(f"/s/{n:04d}", b"12345", 0, 1, 1) for n in range(1500))))
        await raw.close()
        await stage.operation.start({"target": TARGET_URL, "nodes_per_s": "500"}, "somebody")
        done, total = 0, 0
        async with asyncio.timeout(30.0):
            while not done:
                status = (await stage.operation.status()).as_json()
                assert status["phase"] in ("preparing", "copying"), "nothing was shown"
                progress = status["progress"] or {}
                done, total = progress.get("done") or 0, progress.get("total") or 0
                await asyncio.sleep(0.01)
        assert 500 <= done < total
        assert total >= 1500
        await stage.ask(Verb.ABORT)
        await stage.until("aborted")


@pytest.mark.goal("454.A9", part="lag", broken_by="tail_is_not_waited_for")
async def test_writes_are_held_only_once_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, busy_rounds, rounds = Converging.converge, 4, 0
    async with staged("ash") as stage:
        raw = await stage.open_store(SOURCE_URL)

        async def while_others_write(self: Converging, paths: Iterable[str], *how: Any) -> int:
            nonlocal rounds
            converged = await plain(self, paths, *how)
            rounds += 1
            if rounds <= busy_rounds:
                names = [f"/busy/{rounds}-{number}" for number in range(LAG_MAX + 1)]
                await raw.restore(records(*(Record(name, b"", 0, 1, 1) for name in names)))
            return converged

        await stage.reach("tailing")
        monkeypatch.setattr(Converging, "converge", while_others_write)
        stage.hold("verifying")
        await stage.until_held()
        assert rounds > busy_rounds + 1, "much was left, and it went on"
        stage.go_on()
        await stage.until("switched")
        await raw.close()


@pytest.mark.goal("454.A42", part="cap", broken_by="copy_knows_no_pace")
async def test_a_copy_is_no_faster_than_was_asked_for() -> None:
    async with staged("ash") as stage:
        for number in range(NODES):
            await stage.anybody.store.put(f"/some/{number:03d}", b"12345")
        stage.hold("copying")
        await stage.operation.start({"target": TARGET_URL, "nodes_per_s": "200"}, "somebody")
        await stage.until_held()
        began_s = stage.runtime.clock.monotonic_s()
        stage.hold("tailing")
        await stage.until_held()
        assert stage.runtime.clock.monotonic_s() - began_s >= 0.9 * NODES / 200


@pytest.mark.goal("454.A42", part="resumed", broken_by="copy_knows_no_pace")
async def test_a_copy_that_another_driver_goes_on_with_is_no_faster() -> None:
    async with staged("ash") as stage:
        for number in range(NODES):
            await stage.anybody.store.put(f"/some/{number:03d}", b"12345")
        stage.hold("copying")
        await stage.operation.start({"target": TARGET_URL, "nodes_per_s": "200"}, "somebody")
        await stage.until_held()
        trouble = stage.troubles[TARGET_URL]
        trouble.stops_after = NODES // 10
        stage.go_on()
        await trouble.stopped.wait()
        await stage.end("ash")
        stage.hold("tailing")
        began_s = stage.runtime.clock.monotonic_s()
        await stage.join("birch")
        await stage.until_held()
        assert stage.runtime.clock.monotonic_s() - began_s >= 0.8 * NODES / 200


async def records(*found: Record) -> AsyncIterator[Record]:
    for record in found:
        yield record


async def everything(store: MetadataStore) -> dict[str, Record]:
    return {
        record.path: record
        async for record in store.export("/")
        if record.session is None and not record.path.startswith("/anabranch")
    }


@pytest.mark.timeout(180)
@pytest.mark.goal("454.A43", part="unusual", broken_by="empty_nodes_are_left_out")
@pytest.mark.goal("454.A15", part="kept", broken_by="times_are_left_out")
async def test_unusual_nodes_arrive_byte_for_byte_with_their_times() -> None:
    async with staged("ash") as stage:
        store = stage.anybody.store
        await store.put("/empty", b"")
        await store.put("/large", bytes(range(256)) * 4096)
        await store.put("/" + "/".join(f"d{depth}" for depth in range(60)), b"deep")
        await store.put("/\u00e9\u4e16\U0001f600/na me", "wert \u20ac".encode())
        raw = await stage.open_store(SOURCE_URL)
        old = Record("/old", b"x", 41, 1_000, 2_000)
        many = (Record(f"/many/{number:05d}", b"%d" % number, 0, 1, 1) for number in range(100_000))
        await raw.restore(records(old, Record("/many", b"", 0, 1, 1), *many))
        await stage.reach("freezing")
        target = await stage.open_store(TARGET_URL)
        wanted, found = await everything(raw), await everything(target)
        assert len(wanted) > 100_000
        assert found.keys() == wanted.keys()
        assert found["/old"] == old, "with its version and both times"
        for path, record in wanted.items():
            assert found[path] == record, path
        stage.go_on()
        await stage.until("switched")
        await raw.close()
        await target.close()


@pytest.mark.goal("454.A40", part="scans", broken_by="indexes_are_left_out")
async def test_an_index_finds_the_same_as_a_scan_of_everything() -> None:
    async with staged("ash") as stage:
        store = stage.anybody.store
        for number in range(50):
            keys = (IndexKey("by", f"{number % 7}"),) if number % 3 else ()
            await store.put(f"/some/{number:02d}", b"", indexes=keys)
        await stage.reach("tailing")
        await store.put("/some/51", b"", indexes=(IndexKey("by", "3"),))
        await store.put("/some/01", b"", indexes=(IndexKey("by", "5"),))
        await store.delete("/some/02")
        stage.go_on()
        await stage.until("switched")
        await stage.all_on("target")
        scanned = {
            record.path: [key.key for key in record.indexes]
            async for record in store.export("/some")
            if record.indexes
        }
        assert scanned["/some/01"] == ["5"]
        assert len(scanned) == 33
        for key in range(7):
            found = [n.stat.path async for n in store.scan_index("by", f"{key}", f"{key + 1}")]
            assert sorted(found) == [path for path, keys in scanned.items() if keys == [f"{key}"]]
