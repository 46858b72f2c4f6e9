"""What a job has done already, in a folder: a job that was ended goes on behind it.

    job.json        format, version, which job, and of what
    STEP.jsonl      one line for each part of a step that is done: its key, and what came of it
    STEP.table      a table that a step has made, for Spark to read again

The driver alone writes it, a line when the part is done; a line that was cut off counts for
nothing. When a job comes to its end its state is removed: another run begins anew.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import ConflictError, FormatError

FORMAT: Final = "anabranch-job-state"
VERSION: Final = 1
_HEAD: Final = "job.json"
_LINES: Final = ".jsonl"
_TABLE: Final = ".table"


class JobState:
    """The state of one job. Without a folder it forgets."""

    def __init__(self, folder: Path | None) -> None:
        """Use `kept_state`."""
        self._folder = folder

    def done(self, step: str) -> dict[str, Any]:
        """What came of the parts of a step that are done, by their keys."""
        if self._folder is None or not (file := self._folder / f"{step}{_LINES}").exists():
            return {}
        found = {}
        for line in file.read_text().splitlines():
            try:
                part = json.loads(line)
            except ValueError:
                continue  # cut off: that part is done again
            found[part["part"]] = part["result"]
        return found

    def keep(self, step: str, results: Mapping[str, Any]) -> None:
        """Some parts are done."""
        if self._folder is None or not results:
            return
        path = self._folder / f"{step}{_LINES}"
        cut_off = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a") as file:
            if cut_off:
                file.write("\n")
            for key, result in results.items():
                file.write(json.dumps({"part": key, "result": result}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def table(self, spark: SparkSession, step: str, make: Callable[[], DataFrame]) -> DataFrame:
        """The table of a step: as it was kept, or made now and kept."""
        if self._folder is None:
            return make()
        path = self._folder / f"{step}{_TABLE}"
        # Java has a working folder and a default file system of its own.
        place = f"file:{path.absolute()}"
        if not (path / "_SUCCESS").exists():
            make().write.mode("overwrite").parquet(place)
        return spark.read.parquet(place)

    def forget(self) -> None:
        """Remove everything."""
        if self._folder is None:
            return
        for path in self._folder.iterdir():
            if path.name.endswith(_TABLE):
                shutil.rmtree(path)
            elif path.name.endswith(_LINES):
                path.unlink()
        (self._folder / _HEAD).unlink()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


@contextmanager
def kept_state(folder: Path | None, job: str, of: Mapping[str, Any]) -> Iterator[JobState]:
    """The state of a job in a folder; None keeps nothing. Removed when the block ends well.

    Raises:
        ConflictError: if the folder has the state of another job, or of the same with other data.
        FormatError: if something else is there.
    """
    if folder is not None:
        _begin(folder, {"format": FORMAT, "version": VERSION, "job": job, "of": dict(of)})
    state = JobState(folder)
    yield state
    state.forget()


def _begin(folder: Path, head: Mapping[str, Any]) -> None:
    file = folder / _HEAD
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise FormatError(f"{folder} is not empty, and has no state of a job: name another")
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{_HEAD}.new"
        beside.write_text(json.dumps(head))
        beside.replace(file)
        return
    try:
        found = json.loads(file.read_text())
    except ValueError:
        raise FormatError(f"{file} is not JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f"{file} is not of the format {FORMAT}")
    if found.get("version") != VERSION:
        known = found.get("version")
        raise FormatError(f"{file} has version {known!r}; this build knows {VERSION}")
    if found != json.loads(json.dumps(head)):
        raise ConflictError(
            f"{folder} has the state of {found.get('job')} of {found.get('of')}, which is another "
            "job: go on with that, or name another folder"
        )
