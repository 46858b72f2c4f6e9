"""Scenarios by name, and how one of them runs for one seed.

A scenario is an async function of a `World`, registered where it is written. It asserts what must
hold, counts what it reached with `World.reach`, and names in `reaches` the marks that a set of
seeds must reach together, in `reaches_seldom` those that only a long run must. A scenario about
tables of transitions declares them with `tables` and returns the (table, transition) pairs it took:
one that no seed ever took was not tested, and fails the set; one that is not in the table fails its
seed.
"""

import gc
import importlib
import pkgutil
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.testing.simulation.world import TIME_LIMIT_S, World

Taken = Iterable[tuple[str, str]]
"""Transitions that were taken: the table's name and the transition's."""
ScenarioMain = Callable[[World], Coroutine[Any, Any, Taken | None]]
Tables = Mapping[str, Collection[str]]
"""By name of the table, the names of its transitions."""
SCENARIOS_PACKAGE = "anabranch.testing.scenarios"
SET_SEEDS = 50
"""How many seeds make a set, unless the scenario says so itself."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that is played with many seeds."""

    name: str
    main: ScenarioMain
    time_limit_s: float
    reaches: tuple[str, ...]
    tables: Tables = field(default_factory=dict)
    set_seeds: int = SET_SEEDS
    """So many seeds, from 0 on, reach all marks together; `make test` plays no more."""
    reaches_seldom: tuple[str, ...] = ()
    """What only many seeds reach together: a set need not, a long run must."""

    @property
    def marks(self) -> list[str]:
        """All that a set of seeds must reach together."""
        transitions = [
            transition_mark(table, name) for table, names in self.tables.items() for name in names
        ]
        return [*self.reaches, *transitions]


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


def transition_mark(table: str, transition: str) -> str:
    """The mark that a taken transition leaves."""
    return f"transition of {table}: {transition}"


def scenario(
    name: str,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    reaches: tuple[str, ...] = (),
    tables: Tables | None = None,
    set_seeds: int = SET_SEEDS,
    reaches_seldom: tuple[str, ...] = (),
) -> Callable[[ScenarioMain], ScenarioMain]:
    """Register an async function of a `World` as a scenario.

    A scenario whose seeds take long has a smaller set; `make sim-long` plays the others.
    """

    def register(main: ScenarioMain) -> ScenarioMain:
        assert name not in _registered, f"two scenarios are called {name}"
        _registered[name] = Scenario(
            name, main, time_limit_s, reaches, tables or {}, set_seeds, reaches_seldom
        )
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
    gc.collect(1)  # what is left of the world before: left to itself it piles up for long
    world = World(seed)
    world.trace.listener = listener
    failure = ""
    try:
        taken = world.run(played.main, time_limit_s=played.time_limit_s)
        for table, transition in taken or ():
            known = played.tables.get(table, ())
            assert transition in known, f"{table} has no transition {transition!r}"
            world.reach(transition_mark(table, transition))
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


def missing_marks(played: Scenario, reached: Counter[str], *, seldom: bool = False) -> list[str]:
    """What a set of seeds, or a long run, should have reached together and did not."""
    often = [mark for mark in played.marks if mark not in played.reaches_seldom]
    wanted = [*often, *(played.reaches_seldom if seldom else ())]
    return [mark for mark in wanted if not reached[mark]]
