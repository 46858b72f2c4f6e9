"""Blows at those who take part in a replacement of the metadata store, and what came of each.

A blow falls when its phase is announced, see `phase_striker`; one that came too late is counted,
and may be tried again.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from random import Random
from typing import Any, Final

from anabranch.metadata.factory import open_store
from anabranch.migrations.freeze_copy.foreign_flag import PARTICIPANTS_PATH
from anabranch.runtime.real import real_runtime
from anabranch.testing.phase_striker import Blow, Order
from anabranch.testing.planted import child_command
from anabranch.testing.replacement_stage import PHASE_S_MAX, ReplacementStage
from anabranch.testing.servers import Member
from anabranch.testing.servers.failures import ServerFailed
from anabranch.verify.records import SERVER_KILLED, Event

SESSION_S: Final = 6.0
"""Of brokers in these drills: for so long a dead one has its topics."""
TRIES_MAX: Final = 8
"""Of a blow that must fall in a phase of some milliseconds."""
CALM_S: Final = 2.0
_AFTERMATH_S: Final = SESSION_S + 4.0
"""After a kill, in which requests may come to nothing: then others have what the dead one had."""


class Strikes:
    """What is done to one cluster."""

    def __init__(self, stage: ReplacementStage, seed: int, bookies: Sequence[Member] = ()) -> None:
        """`bookies` are those that may be struck."""
        self.hits: dict[str, int] = {}
        """Blows that fell in their phase, such as `hit_copying_driver`."""
        self.late = 0
        """Blows that came too late for their phase, and were tried again."""
        self._stage = stage
        self._bookies = bookies
        self._random = Random(seed)

    @asynccontextmanager
    async def striker(
        self, attempt: int, phase: str, victim: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that will strike in a phase of an attempt."""
        cluster = self._stage.cluster
        members = list(zip(cluster.brokers.web_ports, cluster.brokers.members, strict=True))
        self._random.shuffle(members)
        order = Order(
            url=cluster.source.url,
            number=attempt,
            phase=phase,
            victim=victim,
            brokers={f":{port}": member.pid for port, member in members},
            target=cluster.target.server.pid,
            bookie=self._random.choice(self._bookies).pid if self._bookies else 0,
        )
        striker = await asyncio.create_subprocess_exec(
            *child_command("anabranch.testing.phase_striker", json.dumps(asdict(order))),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await _line(striker)
            yield striker
        finally:
            await _end(striker)

    async def struck(
        self, striker: asyncio.subprocess.Process, window: str, *, goes_back: bool = False
    ) -> Blow:
        """Wait for the blow; a rollback that comes to nothing before it is asked for again."""
        said = asyncio.ensure_future(_line(striker))
        while goes_back and not said.done():
            if (await self._stage.status())["phase"] == "switched":
                await self._stage.ask("rollback")
            await asyncio.wait([said], timeout=CALM_S)
        blow = Blow(**json.loads(await said))
        if blow.pid:
            self._stage.fault(blow.at_s)
            self._stage.workload.note(Event(SERVER_KILLED, window))
        return blow

    def whom(self, blow: Blow) -> Member | None:
        """Who was struck."""
        cluster = self._stage.cluster
        members = (*cluster.brokers.members, cluster.target.server, *self._bookies)
        hit = next((member for member in members if member.pid == blow.pid), None)
        if hit is not None:
            hit.kill()  # it is dead; now it is known to be
        return hit

    async def back_again(self, hit: Member | None) -> None:
        """Start whoever was struck again, after a while."""
        if hit is not None:
            await asyncio.sleep(self._random.uniform(0, CALM_S))
            hit.launch()
            await asyncio.to_thread(hit.wait_ready)

    async def recovered(self, blow: Blow, words: str) -> None:
        """Wait until everybody is served as before; from then on nothing may be noticed."""
        if blow.pid:
            since_s = asyncio.get_running_loop().time() - blow.at_s
            await asyncio.sleep(max(0.0, _AFTERMATH_S - since_s))
        await self._stage.progress(words)
        self._stage.fault_over()

    def counted(
        self, blow: Blow, phase: str, victim: str, hit: Member | None, rest: dict[str, Any]
    ) -> bool:
        """Note what came of a blow; returns whether it fell in its phase."""
        fell = blow.fell_in(phase)
        if fell:
            name = f"hit_{phase}_{victim}"
            self.hits[name] = self.hits.get(name, 0) + 1
        else:
            self.late += 1
        print(
            f"{phase}, {victim} ({hit.name if hit else 'nobody'}): "
            f"{'hit' if fell else f'too late, in {blow.phase}'}, "
            f"came to {rest['phase']}: {rest.get('error') or '-'}",
            file=sys.stderr,
            flush=True,
        )
        return fell


@asynccontextmanager
async def stray_registration(url: str) -> AsyncIterator[None]:
    """Have attempts fail after the last changes were copied: somebody not led seems to write.

    No plan sees it, since no session has it.
    """
    store = await open_store(url, real_runtime())
    try:
        stat = await store.put(f"{PARTICIPANTS_PATH}/id-", b"", sequential=True)
        try:
            yield
        finally:
            await store.delete(stat.path)
    finally:
        await store.close()


async def _line(striker: asyncio.subprocess.Process) -> bytes:
    assert striker.stdout is not None
    try:
        async with asyncio.timeout(PHASE_S_MAX):
            line = await striker.stdout.readline()
    except TimeoutError as error:
        raise ServerFailed(f"nobody was struck for {PHASE_S_MAX:g} s") from error
    if not line:
        raise ServerFailed("the striker ended without a word")
    return line


async def _end(striker: asyncio.subprocess.Process) -> None:
    if striker.returncode is None:
        try:
            async with asyncio.timeout(10.0):
                await striker.wait()
        except TimeoutError:
            striker.kill()
            await striker.wait()
