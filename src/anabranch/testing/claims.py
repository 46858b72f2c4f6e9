"""What the goal markers of all tests say, asked of pytest itself."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from anabranch.errors import InputError
from anabranch.testing.goal_results import Claim

_COLLECT: Final = (
    *(sys.executable, "-m", "pytest", "--collect-only", "-qq"),
    *("-n", "0", "-p", "no:cacheprovider"),
)
_COLLECT_S_MAX: Final = 600
_OUTPUT_LINES: Final = 20


def collect_claims(root: Path) -> list[Claim]:
    """Collect every test below `root`, run none, and return their claims.

    Raises:
        InputError: if the tests cannot be collected.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "claims.json"
        done = subprocess.run(
            [*_COLLECT, "--goal-claims", str(path)],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COLLECT_S_MAX,
        )
        if done.returncode != 0 or not path.exists():
            said = "\n".join((done.stdout + done.stderr).splitlines()[-_OUTPUT_LINES:])
            raise InputError(f"the tests cannot be collected, so nothing is known of them:\n{said}")
        return [Claim(**fields) for fields in json.loads(path.read_text())]
