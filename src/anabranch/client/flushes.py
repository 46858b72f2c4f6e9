"""Those who wait until everything is answered that was sent before they came."""

import asyncio


class Flushes:
    """Of one producer."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def until(self, before: int) -> None:
        """Wait until no message with a smaller number is unanswered."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((before, settled))
        await settled

    def answered(self, oldest: int | None) -> None:
        """Something was answered; `oldest` is the least number that is not, None if all are."""
        if not self._waiting:
            return
        waiting = []
        for before, settled in self._waiting:
            if oldest is not None and oldest < before:
                waiting.append((before, settled))
            elif not settled.done():
                settled.set_result(None)
        self._waiting = waiting
