"""Runs one file of a `unittest` suite: `suite_file.py TEST-FILE OUTCOMES-FILE`.

It is run by the interpreter of the suite, which need not have this project installed, so it may
import nothing but the standard library. A line is written as each test ends: what a file that
hangs or crashes has shown before stays known.
"""

import json
import sys
import time
import unittest
from pathlib import Path
from typing import Any


class Written(unittest.TextTestResult):
    """Outcomes as lines of JSON, besides what unittest prints."""

    outcomes: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # What prepares a class may fail before any test has begun.
        self._begun_s = time.monotonic()

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """A test begins."""
        self._begun_s = time.monotonic()
        super().startTest(test)

    def _write(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        line = {
            "test": test.id(),
            "outcome": outcome,
            "seconds": round(time.monotonic() - self._begun_s, 2),
            "why": why[-2000:],
        }
        self.outcomes.write(json.dumps(line) + "\n")
        self.outcomes.flush()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """A test passed."""
        super().addSuccess(test)
        self._write(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """An assertion did not hold."""
        super().addFailure(test, err)
        self._write(test, "failed", self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """A test, or what prepares it, raised."""
        super().addError(test, err)
        self._write(test, "failed", self.errors[-1][1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """A test said that it cannot run here."""
        super().addSkip(test, reason)
        self._write(test, "skipped", reason)


def main() -> int:
    """Run the file's tests, all or those that are named; the outcomes are in the file given."""
    file, outcomes, *names = sys.argv[1:]
    folder, module = str(Path(file).parent), Path(file).stem
    sys.path.insert(0, folder)
    with Path(outcomes).open("w") as written:
        Written.outcomes = written
        loader = unittest.TestLoader()
        loader.testNamePatterns = [f"*{name}*" for name in names] or None
        suite = loader.loadTestsFromName(module)
        unittest.TextTestRunner(verbosity=2, resultclass=Written).run(suite)
    return 0


if __name__ == "__main__":
    sys.exit(main())
