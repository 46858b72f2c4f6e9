"""A participant that others wait for reports in the end, whatever its lease went through."""

import asyncio
import math
from dataclasses import asdict
from typing import Any

import pytest

from anabranch.metadata.announced import (
    JOURNAL_MAGIC,
    Announced,
    Report,
    journal_path,
    participants_path,
    read_report,
    write_document,
)
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.migrations.engine.participant import Participant
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

KIND = "some"


class Leased:
    """A handle whose session has to be renewed."""

    session_timeout_s = 1.0

    def __init__(self, handle: LocalHandle) -> None:
        self._handle = handle
        self.session_valid_until = math.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


class Part:
    """Is wherever it should be, but the lease runs out meanwhile."""

    lag = 0

    def __init__(self, leased: Leased) -> None:
        self._leased = leased
        self.entered = asyncio.Event()

    async def registered(self) -> None:
        """See `Part.registered`."""

    async def enter(self, announced: Announced) -> None:
        self._leased.session_valid_until = 0.0
        self.entered.set()


@pytest.mark.timeout(60)
async def test_report_comes_once_the_lease_runs_again() -> None:
    clock = real_runtime().clock
    base = MemoryStore(clock)
    leased: Any = Leased(await base.handle())
    part = Part(leased)
    head = asdict(Announced("one", 1, 1, "failing", {}, 3))
    await base.put(journal_path(KIND), write_document(JOURNAL_MAGIC, {"announced": head}))

    def failed(name: str, error: BaseException) -> None:
        raise AssertionError(f"{name}: {error!r}") from error

    tasks = Tasks(failed)
    me = Report("ash", "broker", "h", "1")
    joining = asyncio.ensure_future(Participant(leased, clock, tasks, KIND, me, part).join())
    await part.entered.wait()
    await asyncio.sleep(0.01)
    leased.session_valid_until = math.inf  # it was heard of in time after all
    await joining
    node = await base.get(f"{participants_path(KIND)}/ash")
    assert node is not None
    assert read_report(node.value).serial == 3
    await tasks.close()
    await leased.close()
    await base.close()
