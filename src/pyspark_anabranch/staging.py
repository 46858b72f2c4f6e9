"""Rows that wait until it is decided that they count: of a stream, beside Spark's checkpoint.

    <checkpoint>/anabranch-sink/<query>/<batch>/<task>-<attempt>-<token>.arrow   of one attempt
    <checkpoint>/anabranch-sink/<query>/<batch>/decision.json      which attempts count
    <checkpoint>/anabranch-sink/<query>/published.json             the last batch that is out

Those of a batch write wait in a folder of their own, under the name of the job. A decision is made
once. When Spark runs a batch again, rows may come in another order or in other
tasks: then what was decided is published, and what came again is thrown away. Spark numbers
attempts from zero in every run of a query, so a number alone would let one run write over another.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from anabranch.errors import FormatError
from pyspark_anabranch.files import folder_at

_FOLDER: Final = "anabranch-sink"
_FORMAT: Final = {"format": "anabranch-sink", "version": 1}


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of one attempt at a task."""

    query_id: str
    batch_id: int
    task: int
    attempt: int
    rows: int
    token: str
    """Of this attempt alone, whichever run of the query made it."""
    largest_bytes: int = 0
    """What the largest of the rows takes at most."""


class Stage:
    """The files of one query's sink."""

    def __init__(self, checkpoint: str, query_id: str) -> None:
        """Find them; nothing is created yet.

        Args:
            checkpoint: a folder, or the address of one in a file system that Arrow knows.
            query_id: Spark's name for the query over all its runs.
        """
        self._files, root = folder_at(checkpoint)
        self._root = f"{root}/{_FOLDER}/{query_id}"

    def _folder(self, batch_id: int) -> str:
        return f"{self._root}/{batch_id}"

    def _path(self, staged: StagedRows) -> str:
        name = f"{staged.task}-{staged.attempt}-{staged.token}.arrow"
        return f"{self._folder(staged.batch_id)}/{name}"

    def write(self, staged: StagedRows, schema: pa.Schema | None, batches: Any) -> int:
        """Keep the rows of an attempt, and return how many they are."""
        rows = 0
        self._files.create_dir(self._folder(staged.batch_id), recursive=True)
        writer = None
        with self._files.open_output_stream(self._path(staged)) as out:
            for batch in batches:
                if writer is None:
                    writer = pa.ipc.new_stream(out, batch.schema if schema is None else schema)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
        return rows

    def read(self, staged: StagedRows) -> Iterator[pa.RecordBatch]:
        """The rows of an attempt."""
        if staged.rows == 0:
            return
        path = self._path(staged)
        with self._files.open_input_stream(path) as content, pa.ipc.open_stream(content) as batches:
            yield from batches

    def has(self, staged: StagedRows) -> bool:
        """Whether the rows of an attempt are here."""
        return bool(self._files.get_file_info(self._path(staged)).type == fs.FileType.File)

    def says_where(self, staged: StagedRows) -> bool:
        """Whether rows of an attempt name a topic or a partition."""
        first = next(self.read(staged), None)
        return first is not None and not {"topic", "partition"}.isdisjoint(first.schema.names)

    def decide(self, batch_id: int, attempts: Sequence[StagedRows]) -> None:
        """Let these attempts count, unless others do already."""
        if self.decided(batch_id) is None:
            path = f"{self._folder(batch_id)}/decision.json"
            self._keep(path, {"attempts": [asdict(each) for each in attempts]})

    def decided(self, batch_id: int) -> list[StagedRows] | None:
        """Which attempts at a batch count; None if that is not decided."""
        known = self._document(f"{self._folder(batch_id)}/decision.json")
        return None if known is None else [StagedRows(**each) for each in known["attempts"]]

    def is_published(self, batch_id: int) -> bool:
        """Whether a batch is out."""
        known = self._document(f"{self._root}/published.json")
        return known is not None and batch_id <= known["batch_id"]

    def finish(self, batch_id: int) -> None:
        """A batch is out: remember that, and forget its rows."""
        if not self.is_published(batch_id):
            # A driver that was taken for dead may come to its end late: what is out stays out.
            self._keep(f"{self._root}/published.json", {"batch_id": batch_id})
        self.forget(batch_id)

    def forget(self, batch_id: int) -> None:
        """Delete what was kept of a batch."""
        if self._files.get_file_info(self._folder(batch_id)).type != fs.FileType.NotFound:
            self._files.delete_dir(self._folder(batch_id))

    def remove(self) -> None:
        """Delete everything that was kept."""
        if self._files.get_file_info(self._root).type != fs.FileType.NotFound:
            self._files.delete_dir(self._root)

    def discard(self, attempts: Sequence[StagedRows]) -> None:
        """Delete attempts that do not count."""
        for staged in attempts:
            path = self._path(staged)
            if self._files.get_file_info(path).type != fs.FileType.NotFound:
                self._files.delete_file(path)

    def _keep(self, path: str, document: dict[str, Any]) -> None:
        # Whole or not at all, in file systems that rename as well as in those that do not.
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(f"{path}.new") as out:
            out.write(json.dumps(_FORMAT | document).encode())
        self._files.move(f"{path}.new", path)

    def _document(self, path: str) -> dict[str, Any] | None:
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as content:
            found: dict[str, Any] = json.loads(content.read())
        if {key: found.get(key) for key in _FORMAT} != _FORMAT:
            raise FormatError(f"{path} is of another program, or of a version not known here")
        return found
