"""How far a phase is, in a node that the driver writes now and then and anybody may read.

Nothing depends on it: it is written without waiting for the answer to matter, at most so often, and
a new driver begins a new one.
"""

import asyncio
from dataclasses import asdict, dataclass

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import (
    OPERATIONS,
    Announced,
    read_document,
    write_document,
)
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.limits import ERROR_CHARS_MAX, PROGRESS_WRITE_S
from anabranch.migrations.engine.steps import Progress

_MAGIC = "anabranch-progress"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the driver shows of its work."""

    attempt: str
    epoch: int
    phase: str
    progress: Progress
    waits_for: tuple[str, ...] = ()
    """Participants that a barrier waits for."""
    trouble: str = ""
    """The error after which the step is tried again."""


def progress_path(kind: str) -> str:
    """Where the driver of a kind of operation shows how far it is."""
    return f"{OPERATIONS}/{kind}/progress"


async def read_progress(store: MetadataStore, kind: str) -> Shown | None:
    """What the driver showed last; None if there is nothing.

    Raises:
        FormatError: if it is of a version that this build does not know.
    """
    node = await store.get(progress_path(kind))
    if node is None:
        return None
    fields = read_document(node.value, _MAGIC, "the progress of an operation")["shown"]
    progress = Progress(**fields.pop("progress"))
    waits_for = tuple(fields.pop("waits_for"))
    return Shown(progress=progress, waits_for=waits_for, **fields)


class ProgressBoard:
    """The driver's side."""

    def __init__(self, store: MetadataStore, kind: str) -> None:
        self.shown: Shown | None = None
        self._store = store
        self._path = progress_path(kind)
        self._written: Shown | None = None

    def begin(self, announced: Announced) -> None:
        """A phase begins."""
        self.shown = Shown(announced.attempt, announced.epoch, announced.phase, Progress())

    def show(self, announced: Announced, progress: Progress) -> None:
        """A step tells how far it is."""
        self.shown = Shown(announced.attempt, announced.epoch, announced.phase, progress)

    def wait_for(self, announced: Announced, waits_for: tuple[str, ...]) -> None:
        """A barrier is not open yet."""
        self.shown = Shown(
            announced.attempt, announced.epoch, announced.phase, Progress(), waits_for
        )

    def trouble(self, announced: Announced, why: str) -> None:
        """A step met an error and is tried again."""
        before = Progress() if self.shown is None else self.shown.progress
        self.shown = Shown(
            announced.attempt,
            announced.epoch,
            announced.phase,
            before,
            trouble=why[:ERROR_CHARS_MAX],
        )

    async def write_on(self) -> None:
        """Write what is shown, again and again, until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(PROGRESS_WRITE_S)

    async def write(self) -> None:
        """Write what is shown, if it is new."""
        shown = self.shown
        if shown is None or shown == self._written:
            return
        try:
            await self._store.put(self._path, write_document(_MAGIC, {"shown": asdict(shown)}))
        except AnabranchError:
            return  # the next one tells more
        self._written = shown
