"""Scenarios by name, and how one of them runs for one seed.

A scenario is an async function of a `World`, registered where it is written. It asserts what must
hold, counts what it reached with `World.reach`, and names in `reaches` the marks that a set of
seeds must reach together: a transition no seed ever took was not tested.
"""

import importlib
import pkgutil
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from anabranch.testing.simulation.world import TIME_LIMIT_S, World

ScenarioMain = Callable[[World], Coroutine[Any, Any, Any]]
SCENARIOS_PACKAGE = "anabranch.testing.scenarios"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that is played with many seeds."""

    name: str
    main: ScenarioMain
    time_limit_s: float
    reaches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed did."""

    scenario: str
    seed: int
    digest: str
    virtual_s: float
    reached: Counter[str]
    failure: str = ""
    """Empty, or the error with its traceback."""
    tail: tuple[str, ...] = field(default=())

    @property
    def replay(self) -> str:
        """The one command that plays it again."""
        return f"make sim SCENARIO={self.scenario} SEED={self.seed}"


_registered: dict[str, Scenario] = {}


def scenario(
    name: str, *, time_limit_s: float = TIME_LIMIT_S, reaches: tuple[str, ...] = ()
) -> Callable[[ScenarioMain], ScenarioMain]:
    """Register an async function of a `World` as a scenario."""

    def register(main: ScenarioMain) -> ScenarioMain:
        assert name not in _registered, f"two scenarios are called {name}"
        _registered[name] = Scenario(name, main, time_limit_s, reaches)
        return main

    return register


def load_scenarios(*modules: str) -> dict[str, Scenario]:
    """Import the scenarios of the package, and further modules, and return all by name."""
    package = importlib.import_module(SCENARIOS_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__, f"{SCENARIOS_PACKAGE}."):
        importlib.import_module(module.name)
    for extra in modules:
        importlib.import_module(extra)
    return dict(sorted(_registered.items()))


def run_seed(
    played: Scenario, seed: int, *, listener: Callable[[str], object] | None = None
) -> Outcome:
    """Play a scenario with one seed; a failure is an outcome, not an error."""
    world = World(seed)
    world.trace.listener = listener
    failure = ""
    try:
        world.run(played.main, time_limit_s=played.time_limit_s)
    except Exception as error:  # noqa: BLE001 - every way a scenario can fail is its outcome
        failure = "".join(traceback.format_exception(error))
    return Outcome(
        scenario=played.name,
        seed=seed,
        digest=world.trace.digest(),
        virtual_s=world.now_s(),
        reached=world.reached,
        failure=failure,
        tail=tuple(world.trace.tail) if failure else (),
    )


def missing_marks(played: Scenario, reached: Counter[str]) -> list[str]:
    """What a set of seeds should have reached together and did not."""
    return [mark for mark in played.reaches if not reached[mark]]
