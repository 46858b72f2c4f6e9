"""What producers of a workload send, and how client processes talk to their coordinator."""

import json
import os
import sys
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from anabranch.verify import payload
from anabranch.verify.history import HistoryWriter
from anabranch.verify.records import Send

OUTSTANDING_MAX: Final = 500
BURST_MAX: Final = 100
_PAYLOAD_BYTES: Final = (128, 1024, 1024, 4096, 16384)
_TOO_LARGE_BYTES: Final = 6 << 20
"""More than a server takes unless it was told to; so some sends certainly fail."""
_TOO_LARGE_FIRST: Final = 20
_TOO_LARGE_EVERY: Final = 1000


class MessageMaker:
    """Numbers the messages of one producer and puts each on record before it is sent."""

    def __init__(self, task: dict[str, Any], history: HistoryWriter) -> None:
        self._task = task
        self._history = history
        self._random = Random(f"{task['seed']}/{task['producer']}")
        self.made = 0

    def make(self, count: int) -> Iterator[tuple[int, str, bytes]]:
        """Yield seq, key and content of the next messages."""
        task = self._task
        for _ in range(count):
            self.made += 1
            seq = self.made  # from 1: the stock library takes 0 for "choose one yourself"
            key = f"k{self._random.randrange(task['keys'])}"
            length = self._random.choice(_PAYLOAD_BYTES)
            if task["too_large"] and seq % _TOO_LARGE_EVERY == _TOO_LARGE_FIRST:
                length = _TOO_LARGE_BYTES
            content, crc = payload.build(
                run=task["run"],
                producer=task["producer"],
                epoch=task["epoch"],
                seq=seq,
                key=key,
                length=length,
            )
            self._history.append(Send(task["producer"], task["epoch"], seq, key, crc))
            yield seq, key, content


def say(**fields: Any) -> None:
    """Tell the coordinator something."""
    try:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The coordinator is gone; the end of standard input stops this process in good order.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
