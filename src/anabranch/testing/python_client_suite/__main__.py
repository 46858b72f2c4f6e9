"""`python -m anabranch.testing.python_client_suite CHECKOUT`: passes per file."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.testing.python_client_suite import suite_file
from anabranch.testing.python_client_suite.outcomes import FileRun, document, parse_outcomes, table
from anabranch.testing.python_client_suite.service import service
from anabranch.testing.servers.process import bound_to_parent

FILE_S_MAX: Final = 900
"""Its longest file waits for minutes on addresses that never answer."""


def run_file(python: str, file: Path, names: Sequence[str], log: Path) -> FileRun:
    """Run one file of tests with the suite's interpreter, and end it if it takes too long."""
    with tempfile.TemporaryDirectory(prefix="anabranch-outcomes-") as folder, log.open("ab") as out:
        written = Path(folder) / "outcomes"
        command = [python, str(Path(suite_file.__file__)), str(file), str(written), *names]
        child = subprocess.Popen(
            bound_to_parent(command),
            cwd=file.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        remark = ""
        try:
            if code := child.wait(FILE_S_MAX):
                remark = f"ended with {code}; see {log}"
        except subprocess.TimeoutExpired:
            remark = f"was ended after {FILE_S_MAX} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        lines = written.read_text().splitlines() if written.exists() else []
    return FileRun(file.name, parse_outcomes(lines), remark)


def client_version(python: str) -> str:
    """The version of the client that the suite's interpreter has."""
    code = "import pulsar; print(pulsar.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the server, run the files, print what they showed; 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.python_client_suite")
    parser.add_argument("checkout", type=Path, help="of apache/pulsar-client-python")
    parser.add_argument("--python", default=sys.executable, help="that has what the tests import")
    parser.add_argument("--files", nargs="*", default=[], help="such as reader_test.py; all")
    parser.add_argument("--tests", nargs="*", default=[], help="parts of names; all")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="what the tests print")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    found = parser.parse_args(arguments)
    folder = found.checkout.resolve() / "tests"
    files = [folder / name for name in found.files] or sorted(folder.glob("*_test.py"))
    if not files or not all(file.is_file() for file in files):
        parser.error(f"{folder} does not have the files of tests")
    runs = []
    try:
        with service(found.checkout.resolve()):
            for file in files:
                print(f"{file.name} ...", file=sys.stderr, flush=True)
                runs.append(run_file(found.python, file, found.tests, found.log))
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    version = client_version(found.python)
    print(document(runs, version) if found.output == "json" else table(runs))
    return int(any(run.remark or run.count("failed") for run in runs))


if __name__ == "__main__":
    sys.exit(main())
