"""The client `oxia` of the Python package index, as one more side of a benchmark.

As it is published it cannot be imported beside the newest versions of what it needs. So it lives in
an environment of its own, pinned by `requirements/oxia-client.lock` and made once, in the cache of
the servers.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.testing.servers.cache import cache_folder, digest_of_file
from anabranch.testing.servers.failures import FetchFailed, ToolFailed
from anabranch.testing.servers.process import bound_to_parent
from benchmarks.metadata_rates import BULK, IN_FLIGHT, PIPELINED, SINGLE, VALUE, bulk_paths
from benchmarks.report import Figure, SideRun

SIDE: Final = "oxia client"
_LOCK: Final = Path(__file__).parents[1] / "requirements" / "oxia-client.lock"
_CHILD: Final = Path(__file__).with_name("published_oxia_child.py")
_S_MAX: Final = 900
_OUTPUT_TAIL: Final = 2000


def _run(command: Sequence[str], say_what: str, given: str = "") -> str:
    try:
        done = subprocess.run(
            bound_to_parent(list(command)),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=_S_MAX,
        )
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{say_what} took over {_S_MAX} s") from None
    if done.returncode:
        raise ToolFailed(f"{say_what} failed: {done.stderr.strip()[-_OUTPUT_TAIL:]}")
    return done.stdout


def prepare(say: Callable[[str], None]) -> Path:
    """Return the Python that has the client, made first if it is not there.

    Raises:
        FetchFailed: if it cannot be made; nothing is left of it then.
    """
    folder = cache_folder() / f"oxia-client-{digest_of_file(_LOCK)[:16]}"
    python = folder / "bin" / "python"
    if python.exists():
        return python
    say(f"making an environment for the client oxia in {folder}")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetching-") as work:
        made = Path(work) / "environment"
        own = str(made / "bin" / "python")
        install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(_LOCK)]
        try:
            _run([sys.executable, "-m", "venv", str(made)], "making an environment")
            _run([own, *install], "pip install of the client oxia")
            _run([own, "-c", "import oxia"], "importing the client oxia")
            made.rename(folder)
        except (ToolFailed, OSError) as error:
            raise FetchFailed(f"no environment for the client oxia: {error}") from None
    return python


def run_side(python: Path, address: str) -> SideRun:
    """All figures of that client on an empty server.

    Raises:
        ToolFailed: if it does not do the work.
    """
    run = SideRun(SIDE, load_averages=[os.getloadavg()[0]])
    job = {
        "address": address,
        "value_bytes": len(VALUE),
        "paths": bulk_paths(),
        "single": SINGLE,
        "pipelined": PIPELINED,
        "in_flight": IN_FLIGHT,
    }
    output = _run([str(python), str(_CHILD)], "the client oxia", json.dumps(job))
    found: dict[str, Any] = json.loads(output)
    for key, single in (("get_us", SINGLE), ("put_us", SINGLE)):
        run.figures[key] = Figure(found[key] / single * 1e6)
    nodes = found["nodes"]
    for key, count in (
        ("written", BULK),
        ("read", nodes),
        ("gets", PIPELINED),
        ("puts", PIPELINED),
    ):
        run.figures[key] = Figure(count / found[key])
    if nodes < BULK:
        run.remarks.append(f"only {nodes} of {BULK} nodes were read")
    run.load_averages.append(os.getloadavg()[0])
    return run
