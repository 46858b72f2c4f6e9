"""One verification run from start to verdict: send for a while, drain, check."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.verify.check import check_folder
from anabranch.verify.verdict import Verdict
from anabranch.verify.workload import Progress, Workload, WorkloadSettings

_STEP_S: Final = 0.2
OnProgress = Callable[[str, Progress], None]


async def run(
    settings: WorkloadSettings,
    folder: Path,
    *,
    duration_s: float,
    stop: asyncio.Event,
    cut: asyncio.Event,
    on_progress: OnProgress,
) -> Verdict:
    """Run a workload and judge it. `stop` ends the sending early, `cut` the drain.

    Raises:
        ConfigError: if the settings cannot be run.
        InputError: if the folder is not empty.
        ClientFailed: if a client could not connect, or died.
    """
    workload = Workload(settings, folder)
    loop = asyncio.get_running_loop()
    ticker = _Ticker(workload, on_progress)
    ticker.tick()
    try:
        await workload.start()
        ticker.phase = "sending"
        end = loop.time() + duration_s
        while loop.time() < end and not stop.is_set():
            workload.raise_failure()
            await asyncio.sleep(_STEP_S)
        ticker.phase = "waiting for open sends"
        await workload.stop_sending()
        ticker.phase = "draining"
        await workload.drain(cut)
    finally:
        ticker.phase = "closing"
        await workload.close()
        ticker.end()
    workload.raise_failure()
    return check_folder(folder)


class _Ticker:
    """Reports the progress of a workload again and again."""

    def __init__(self, workload: Workload, on_progress: OnProgress) -> None:
        self.phase = "connecting"
        self._workload = workload
        self._on_progress = on_progress
        self._timer: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        self._on_progress(self.phase, self._workload.progress)
        self._timer = asyncio.get_running_loop().call_later(_STEP_S, self.tick)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
