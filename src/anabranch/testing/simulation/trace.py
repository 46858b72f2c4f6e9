"""What happened in a simulated run, as lines, and their running SHA-256.

Two runs of one seed are the same run if and only if their digests are equal.
"""

import hashlib
from collections import deque
from collections.abc import Callable

_TAIL_LINES = 60


class Trace:
    """Takes every line, keeps the last ones, and digests all."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._hash = hashlib.sha256()
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.lines = 0
        self.listener: Callable[[str], object] | None = None
        """Gets every line, to print or keep a whole run."""

    def record(self, text: str) -> None:
        """Add a line with the present virtual time."""
        line = f"{self._time_s():.6f} {text}\n"
        self._hash.update(line.encode())
        self.tail.append(line)
        self.lines += 1
        if self.listener is not None:
            self.listener(line)

    def digest(self) -> str:
        """Hexadecimal digest of all lines so far."""
        return self._hash.hexdigest()
