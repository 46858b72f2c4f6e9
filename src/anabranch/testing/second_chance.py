"""Asks the few tests that failed once more, alone.

Tests on real processes share two cores with each other, and a pause of the machine looks to them
like a fault of ours. A fault fails again when its test has the machine to itself. Tests without
processes, clocks and sockets of their own have nothing to blame: they get no second chance, nor do
many failures at once.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FAILED_FILE: Final = Path(".pytest_cache") / "v" / "cache" / "lastfailed"
TESTS_MAX: Final = 3
DETERMINISTIC: Final = ("architecture", "scenarios", "simulation")
"""Folders below `tests` whose tests end the same way every time."""


def refusal(failed: Iterable[str]) -> str | None:
    """Why these tests are not asked again; None if they are. Pure."""
    tests = sorted(failed)
    if not tests:
        return "no test is known to have failed"
    if len(tests) > TESTS_MAX:
        return f"{len(tests)} tests failed; at most {TESTS_MAX} are asked again"
    for test in tests:
        if "::" not in test:
            return f"{test} could not be collected"
        if Path(test).parts[:2] in {("tests", folder) for folder in DETERMINISTIC}:
            return f"{test} ends the same way every time"
    return None


def main() -> int:
    """Run them; 0 if all pass now."""
    failed = sorted(json.loads(FAILED_FILE.read_text())) if FAILED_FILE.exists() else []
    if (why := refusal(failed)) is not None:
        print(f"no second chance: {why}", file=sys.stderr)
        return 1
    ended = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *failed], check=False)
    if ended.returncode == 0:
        print("\n".join(f"UNSTEADY: {test} failed, and passed alone" for test in failed))
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
