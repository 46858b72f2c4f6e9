"""How a program that runs servers ends when it is told to: by SIGTERM as by Ctrl-C.

A process that SIGTERM ends at once leaves its servers behind. Here the signal becomes the interrupt
that Python knows, so that whatever was begun is ended on the way out.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code of who was told to stop."""


def stop_as_interrupted() -> None:
    """Take SIGTERM for Ctrl-C from now on, in a loop as outside of one."""
    # Whoever started this may have it ignore Ctrl-C, as shells do with what runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def run_program(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program with the process's arguments, and end the process with its code."""
    stop_as_interrupted()
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
