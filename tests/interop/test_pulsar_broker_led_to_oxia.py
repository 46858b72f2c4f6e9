"""A real broker of Pulsar is led to Oxia with its bookie, although it writes past its own freeze.

Namespaces are made all the time; each that was acknowledged is in Oxia afterwards, or is named in
the trail as one that could not be applied.
"""

import asyncio
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.operation import Blocked, Operation
from anabranch.migrations.engine.state import State
from anabranch.runtime.real import real_runtime
from anabranch.testing.replaced_stores import Member
from anabranch.testing.servers import (
    bookkeeper,
    free_port,
    oxia,
    pulsar_brokers,
    set_up_cluster,
    zookeeper,
)
from anabranch.testing.staged_replacement import failed

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

LONG_S = 150.0
POLICIES = "/admin/policies/public"


class Namespaces:
    """Makes one after the other, and notes which of them the broker acknowledged."""

    def __init__(self, web_port: int) -> None:
        self.acknowledged: list[str] = []
        self.answers: dict[int, int] = {}
        self._over = Event()
        self._web_port = web_port
        self._thread = Thread(target=self._make)

    def __enter__(self) -> "Namespaces":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _make(self) -> None:
        number = 0
        while not self._over.is_set():
            name = f"made-{number:05d}"
            number += 1
            status = self._put(name)
            self.answers[status] = self.answers.get(status, 0) + 1
            if status == 204:
                self.acknowledged.append(name)
            time.sleep(0.02)

    def _put(self, name: str) -> int:
        connection = HTTPConnection("127.0.0.1", self._web_port, timeout=60)
        try:
            connection.request("PUT", f"/admin/v2/namespaces/public/{name}")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


async def wait_until(member: Member, is_so: Callable[[State], bool], said: str) -> State:
    async with asyncio.timeout(LONG_S):
        while True:
            state = await member.replaceable.journal.read()
            assert state is not None
            assert state.phase not in ("failed", "aborted"), f"{said}: {state.error}"
            if is_so(state):
                return state
            await asyncio.sleep(0.05)


async def lead(source: str, target: str, made: Namespaces, broker: str) -> State:
    """Have the store be replaced, by a process of ours that does nothing else."""
    runtime = real_runtime()

    async def opener(url: str) -> MetadataStore:
        return await open_store(url, runtime)

    driver = await Member.open(runtime, "driver", source, opener, failed)
    operation = Operation(driver.replaceable.steps, driver.replaceable.journal, runtime.entropy)
    try:
        with pytest.raises(Blocked, match=rf"{broker}: is a broker that .*accept_foreign_risk"):
            await operation.start({"target": target}, "somebody")
        await operation.start({"target": target, "accept_foreign_risk": "true"}, "somebody")
        await wait_until(driver, lambda state: state.phase == "switched", "switch")
        await asyncio.sleep(5.0)
        made.stop()
        return await wait_until(driver, lambda state: "late_over" in state.checkpoint, "late")
    finally:
        await driver.close()


async def children(url: str, path: str) -> set[str]:
    store = await open_store(url, real_runtime())
    try:
        return set(await store.children(path))
    finally:
        await store.close()


@pytest.mark.goal("454.A36", part="brokers")
def test_what_a_broker_of_pulsar_acknowledged_is_in_oxia_or_reported(tmp_path: Path) -> None:
    with (
        zookeeper(memory=("-Xmx256m",), folder=tmp_path / "source") as source,
        oxia(folder=tmp_path / "target") as target,
    ):
        set_up_cluster(source.url, port=free_port(), web_port=free_port())
        with (
            bookkeeper(source.url, 1, folder=tmp_path / "bookies"),
            pulsar_brokers(source.url, 1, folder=tmp_path / "brokers") as brokers,
            Namespaces(brokers.web_ports[0]) as made,
        ):
            state = asyncio.run(
                lead(source.url, target.url, made, f"127.0.0.1:{brokers.web_ports[0]}")
            )
            there = asyncio.run(children(target.url, POLICIES))
            left = asyncio.run(children(source.url, POLICIES))
    trail = [f"{line.at_ms} {line.phase} {line.what} {line.why}" for line in state.trail]
    print(*trail, sep="\n")
    reported = " ".join(trail)
    missing = [name for name in made.acknowledged if name not in there]
    print(f"{len(made.acknowledged)} acknowledged, {made.answers}, {len(left)} in the source,")
    print(f"{len(missing)} not in the target: {missing[:20]}")
    assert len(made.acknowledged) > 20
    assert [name for name in missing if f"{POLICIES}/{name}: NOT applied" not in reported] == []
