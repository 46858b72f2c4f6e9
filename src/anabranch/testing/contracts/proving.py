"""Says which tests of a shared suite prove which goal, where the suite meets one implementation."""

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

import pytest

C = TypeVar("C", bound=type)


def proves(goal: str, part: str, bugs: dict[str, str]) -> Callable[[C], C]:
    """Mark tests that a class inherits, each with the planted bug that it notices.

    The suite's own functions stay unmarked: other implementations use them, too.
    """

    def mark(suite: C) -> C:
        for name, bug in bugs.items():
            shared = getattr(suite, name)
            own = FunctionType(
                shared.__code__, shared.__globals__, name, shared.__defaults__, shared.__closure__
            )
            own.__kwdefaults__ = shared.__kwdefaults__
            own.__annotations__ = shared.__annotations__
            own.__dict__.update(vars(shared))
            own.pytestmark = list(getattr(shared, "pytestmark", []))  # type: ignore[attr-defined]
            setattr(suite, name, pytest.mark.goal(goal, part=part, broken_by=bug)(own))
        return suite

    return mark
