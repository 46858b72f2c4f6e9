"""Outcomes of seeds that this process played already: a seed tells the same story every time.

Several tests look at the same seeds of a scenario, each with its own question. What is asked under
a planted bug that is put in place in between has to be played with `run_seed`.
"""

from anabranch.testing.simulation.scenario import Outcome, Scenario, run_seed

_kept: dict[tuple[str, int], Outcome] = {}


def outcome_of(played: Scenario, seed: int) -> Outcome:
    """What a seed did; it is played if it was not yet."""
    key = (played.name, seed)
    if key not in _kept:
        _kept[key] = run_seed(played, seed)
    return _kept[key]
