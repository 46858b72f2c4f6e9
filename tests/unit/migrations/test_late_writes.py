"""What brokers of Pulsar write late to a store that was left is applied, or reported."""

import asyncio
from contextlib import suppress

import pytest

from anabranch.testing.foreign_process import BROKERS
from anabranch.testing.mixed_stage import mixed


@pytest.mark.goal("454.A36", part="late writes", broken_by="late_writes_are_ignored")
@pytest.mark.broken_by("late_writes_win")
async def test_a_late_write_is_applied_or_reported() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        store = stage.anybody.store
        for name in ("changed", "both", "deleted", "gone", "quiet"):
            await store.put(f"/some/{name}", b"before")
        broker = await all_.other(f"{BROKERS}/them:8080")
        await all_.start(accept_foreign_risk="true")
        await stage.until("switched")
        await stage.all_on("target")
        await store.put("/some/both", b"ours")
        await store.delete("/some/gone")
        past = broker.source  # as its caches write: whatever the flag says
        await past.put("/some/new", b"theirs")
        await past.put("/some/changed", b"theirs")
        await past.put("/some/both", b"theirs")
        await past.put("/some/gone", b"theirs")
        await past.delete("/some/deleted")
        await past.put("/some/of-session", b"", ephemeral=True)

        await all_.until_late(5)
        lines = sorted(await all_.late_lines())
        assert [line.partition(",")[0] for line in lines] == [
            "/some/both: NOT applied",
            "/some/changed: applied",
            "/some/deleted: applied",
            "/some/gone: NOT applied",
            "/some/new: applied",
        ]
        found = {name: await store.get(f"/some/{name}") for name in await store.children("/some")}
        values = {name: node.value for name, node in found.items() if node is not None}
        assert values == {
            "both": b"ours",
            "changed": b"theirs",
            "new": b"theirs",
            "quiet": b"before",
        }
        await past.put("/some/deleted", b"back")
        await all_.until_late(6)
        assert (await all_.late_lines())[-1] == "/some/deleted: applied, created"


@pytest.mark.broken_by("late_writes_are_ignored")
async def test_what_is_written_past_the_freeze_all_the_time_arrives() -> None:
    async with mixed("ash", "birch") as all_:
        stage = all_.stage
        broker = await all_.other(f"{BROKERS}/them:8080")
        written: list[str] = []
        over = asyncio.Event()

        async def write() -> None:
            while not over.is_set():
                path = f"/admin/policies/t/n{len(written) % 40:02d}"
                await broker.source.put(path, b"%d" % len(written))
                written.append(path)
                await asyncio.sleep(0.002)

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0.1)
        await all_.start(accept_foreign_risk="true")
        await stage.until("switched")
        await stage.all_on("target")
        await all_.until_late(1)
        await asyncio.sleep(1.2)  # so that one is late again and again
        over.set()
        await writing
        assert len(written) > 100
        last = {path: b"%d" % number for number, path in enumerate(written)}
        store = stage.anybody.store

        async def found() -> dict[str, bytes]:
            nodes = [await store.get(path) for path in last]
            return {node.stat.path: node.value for node in nodes if node is not None}

        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                while await found() != last:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert await found() == last
