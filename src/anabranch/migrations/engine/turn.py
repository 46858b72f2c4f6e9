"""One run of one phase by one driver, as the operation's step sees it."""

from anabranch.metadata.announced import Report
from anabranch.metadata.locks import Lock
from anabranch.metadata.store import Guard
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.progress import ProgressBoard
from anabranch.migrations.engine.reports import read_reports
from anabranch.migrations.engine.state import Kept, Noted, State
from anabranch.migrations.engine.steps import Checkpoint, Progress


class DriverTurn:
    """See `steps.Turn`."""

    def __init__(self, state: State, lock: Lock, journal: Journal, board: ProgressBoard) -> None:
        self.announced = state.announced
        self.figures = state.figures
        self.checkpoint: Checkpoint = state.checkpoint
        self._lock = lock
        self._journal = journal
        self._board = board

    def check(self) -> None:
        """See `Turn.check`."""
        self._lock.check()

    def guard(self) -> Guard:
        """See `Turn.guard`."""
        return self._lock.guard()

    def progress(self, progress: Progress) -> None:
        """See `Turn.progress`."""
        self._board.show(self.announced, progress)

    async def keep(self, checkpoint: Checkpoint) -> None:
        """See `Turn.keep`."""
        announced = self.announced
        event = Kept(announced.epoch, announced.serial, checkpoint)
        await self._journal.change(event, self.guard)
        self.checkpoint = checkpoint

    async def note(self, what: str, why: str, *, one_way: bool = False) -> None:
        """See `Turn.note`."""
        announced = self.announced
        event = Noted(announced.epoch, announced.serial, what, why, one_way)
        await self._journal.change(event, self.guard)

    async def reports(self) -> list[Report]:
        """See `Turn.reports`."""
        return await read_reports(self._journal.store, self._journal.kind)
