"""Whether planted bugs are small: the other tests of the broken folder should stay green.

A bug that breaks everything shows nothing about the test that claims to notice it.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.errors import InputError
from anabranch.testing.planted import PlantedBug
from anabranch.testing.proofs import ROOT

_RED_SHARE_MAX: Final = 0.25
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "--tb=no", "-m", "not peer"),
    *("-n", "2", "-p", "no:cacheprovider", "--timeout", "20"),
)
_RUN_S_MAX: Final = 600
_COUNTS: Final = re.compile(r"(\d+) (passed|failed|error)")


def unit_tests_of(bug: PlantedBug, root: Path = ROOT) -> Path:
    """The folder (or file) with the unit tests of what the bug breaks."""
    place = bug.target.partition(":")[0].split(".")[1]
    folder = root / "tests" / "unit" / place
    return folder if folder.exists() else root / "tests" / "unit" / f"test_{place}.py"


def count_outcomes(output: str) -> tuple[int, int]:
    """How many tests ran, and how many of them were red, by pytest's last line."""
    last = next((line for line in reversed(output.splitlines()) if _COUNTS.search(line)), "")
    counts = {kind: int(number) for number, kind in _COUNTS.findall(last)}
    red = counts.get("failed", 0) + counts.get("error", 0)
    return red + counts.get("passed", 0), red


def check_smallness(bugs: Mapping[str, PlantedBug], names: Sequence[str]) -> int:
    """Run the unit tests of each bug's folder with it and print how many are red.

    Raises:
        InputError: if a name is unknown.
    """
    unknown = [name for name in names if name not in bugs]
    if unknown:
        raise InputError(f"no planted bug {', '.join(unknown)}")
    too_large = []
    for name in names or bugs:
        tests = unit_tests_of(bugs[name])
        done = subprocess.run(
            [*_PYTEST, "--planted", name, str(tests)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUN_S_MAX,
        )
        ran, red = count_outcomes(done.stdout)
        place = tests.relative_to(ROOT)
        print(f"{name}: {red} of {ran} tests of {place} are red", flush=True)
        if not ran or red > ran * _RED_SHARE_MAX:
            too_large.append(name)
    if too_large:
        print(f"too large: {', '.join(too_large)}", file=sys.stderr)
    return 1 if too_large else 0
