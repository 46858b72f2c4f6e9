"""The page `docs/reference/compatibility.md`, written from the recorded results of the tests.

    python -m anabranch.testing.compatibility_page

What counts is `tests/goals_state.tsv`, which a run of all tests leaves behind; nothing is said here
that is not a row there.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from anabranch.testing.goals import Goal, load_goals, load_state
from anabranch.testing.proofs import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "compatibility.md"
_LOCK: Final = Path(__file__).parent / "servers" / "servers.lock"
_SECTIONS: Final = {
    "core.B": "Clients, topics and tools",
    "core.L": "Ledgers",
    "core.M": "Metadata",
    "core.S": "Security",
}
_WORDS: Final = {
    "proven": "yes",
    "measured": "as fast as wanted",
    "claimed": "yes, partly proven",
    "open": "in part",
    "later": "no",
}
_HEAD: Final = """\
# Compatibility

What of Pulsar works, as the tests found it the last time all of them ran. *Yes* means that tests of
every part pass and fail without the behaviour, or are made with the real software; *yes, partly
proven* that they pass; *in part* that something named in the row is missing or not shown; *no* that
it does not exist. *As fast as wanted* is about speed beside the real software. Written by
`python -m anabranch.testing.compatibility_page`.

## Tested with
"""


def render(goals: Mapping[str, Goal], state: Mapping[str, str]) -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_peers(), *_rows(goals, state)]) + "\n"


def _peers() -> Iterator[str]:
    yield "| Software | Version |"
    yield "|---|---|"
    seen: set[str] = set()
    yield f"| pulsar-client (Python) | {_locked('pulsar-client')} |"
    for artifact in tomllib.loads(_LOCK.read_text())["artifact"]:
        name, version = _name_and_version(artifact["coordinates"][0])
        if name not in seen:
            seen.add(name)
            yield f"| {name} | {version} |"


def _locked(package: str) -> str:
    lines = (ROOT / "requirements" / "dev.lock").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{package}=="))
    return found.removeprefix(f"{package}==").split()[0]


def _name_and_version(coordinate: str) -> tuple[str, str]:
    if "@" in coordinate:
        module, _, version = coordinate.partition("@")
        return module.split("/")[2], version
    _, name, version = coordinate.split(":")[:3]
    return name, version


def _rows(goals: Mapping[str, Goal], state: Mapping[str, str]) -> Iterator[str]:
    for prefix, title in _SECTIONS.items():
        yield f"\n## {title}\n"
        yield "| What | Works | Parts |"
        yield "|---|---|---|"
        for name, goal in goals.items():
            if name.startswith(prefix) and goal.words:
                works = _WORDS[state.get(name, "later" if goal.when == "later" else "open")]
                yield f"| {goal.words} | {works} | {', '.join(sorted(goal.parts))} |"


if __name__ == "__main__":
    PAGE.write_text(render(load_goals(), load_state()))
