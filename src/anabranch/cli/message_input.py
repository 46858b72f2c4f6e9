"""The messages that `produce` sends: of the command line, or the lines of standard input."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence

_CHUNK_BYTES = 64 * 1024
_CHUNKS_AHEAD_MAX = 16


async def repeated(messages: Sequence[bytes], count: int) -> AsyncIterator[list[bytes]]:
    """The same messages again and again."""
    for _ in range(count):
        yield list(messages)


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, as many at a time as there are."""
    if sys.stdin.isatty():
        print("type messages, one per line; Ctrl-D ends", file=sys.stderr)
    rest = b""
    async for chunk in _chunks(sys.stdin.fileno()):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read: by a thread, for nobody else can wait for terminals, pipes and files."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_AHEAD_MAX)
    loop = asyncio.get_running_loop()

    def read() -> None:
        # Not through sys.stdin: a thread that waits there could not be left behind at the end.
        while True:
            chunk = os.read(descriptor, _CHUNK_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the command has ended meanwhile
            if not chunk:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while chunk := await chunks.get():
        yield chunk
