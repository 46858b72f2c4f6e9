"""How far long work is, told on a terminal and nowhere else."""

import time
from collections.abc import Callable
from typing import Final, TextIO

_INTERVAL_S: Final = 0.5
_BAR_CHARACTERS: Final = 20


def bar(done: int, whole: int) -> str:
    """How much of something that has an end is done."""
    share = min(1.0, done / max(1, whole))
    filled = "#" * int(share * _BAR_CHARACTERS)
    return f"[{filled:.<{_BAR_CHARACTERS}}] {int(share * 100):3}%"


class Progress:
    """One line on standard error that is written over; nothing if that is no terminal."""

    def __init__(
        self, out: TextIO, *, now_s: Callable[[], float] = time.monotonic, shown: bool | None = None
    ) -> None:
        self._out = out
        self._now_s = now_s
        self._shown = out.isatty() if shown is None else shown
        self._began_s = self._told_s = now_s()
        self._width = 0

    @property
    def seconds(self) -> float:
        """Since the work began."""
        return self._now_s() - self._began_s

    def tell(self, sent: int, acknowledged: int) -> None:
        """Say how far it is, unless that was said a moment ago."""
        rate = acknowledged / max(self.seconds, 0.001)
        self.show(f"{sent} sent, {acknowledged} acknowledged, {rate:.0f} per second")

    def show(self, text: str) -> None:
        """Say anything, unless something was said a moment ago."""
        if self._shown and self._now_s() - self._told_s >= _INTERVAL_S:
            self._told_s = self._now_s()
            self._write(text)

    def end(self) -> None:
        """Take the line away."""
        if self._width:
            self._write("")
            self._out.write("\r")
            self._out.flush()
            self._width = 0

    def _write(self, text: str) -> None:
        self._out.write(f"\r{text:<{self._width}}")
        self._out.flush()
        self._width = max(self._width, len(text))
