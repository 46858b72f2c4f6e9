"""Where a modelled service lives: a loop, clocks and draws that belong to none of its servers."""

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anabranch.runtime import Clock


@dataclass(slots=True)
class Surroundings:
    """Where a model lives."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    rng: random.Random
    context: contextvars.Context = field(default_factory=contextvars.Context)
    """Belongs to no server."""
    reach: Callable[[str], object] = lambda mark: None
    """Told what happens."""

    def later(self, delay_s: float, then: Callable[..., object], *arguments: Any) -> None:
        """Call a function that belongs to no server."""
        self.loop.call_later(delay_s, then, *arguments, context=self.context)
