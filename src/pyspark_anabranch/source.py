"""The data source `anabranch` as Spark sees it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from anabranch.errors import ConfigError
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.options import ALWAYS, AT_LEAST_ONCE, Options
from pyspark_anabranch.planning import batch_ranges, tasks_of
from pyspark_anabranch.private_keys import check_decryption
from pyspark_anabranch.row_filters import RowFilters
from pyspark_anabranch.sink_rows import check_schema
from pyspark_anabranch.stream_reader import StreamReader
from pyspark_anabranch.task_reading import check_ledgers, partitions_of, read_task
from pyspark_anabranch.writers import (
    DirectBatchWriter,
    DirectStreamWriter,
    StagedBatchWriter,
    StagedStreamWriter,
)


class AnabranchSource(DataSource):
    """Topics as tables: `spark.read.format("anabranch").option("topic", ...)`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "anabranch"

    def schema(self) -> str:
        """The columns that were chosen."""
        columns = Options(self.options).columns
        # A session may have `timestamp` mean moments without a time zone, which ours are not.
        return ", ".join(
            f"{column.name} {column.spark.replace('timestamp', 'timestamp_ltz')}"
            for column in columns
        )

    def reader(self, schema: StructType) -> "BatchReader":
        """Read what is there."""
        return BatchReader(self._read_options("read", schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Read on and on."""
        return StreamReader(self._read_options("stream", schema))

    def writer(self, schema: StructType, overwrite: bool) -> DirectBatchWriter | StagedBatchWriter:
        """Write a DataFrame once."""
        options = self._write_options(schema, overwrite)
        job_id = real_runtime().entropy.token_hex(8)
        if options["guarantee"] == AT_LEAST_ONCE:
            return DirectBatchWriter(options, job_id)
        return StagedBatchWriter(options, job_id)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DirectStreamWriter | StagedStreamWriter:
        """Write batch by batch."""
        options = self._write_options(schema, overwrite)
        if options["stagingFolder"]:
            raise ConfigError(
                "option stagingFolder is for batch writes: a stream keeps rows in its checkpoint"
            )
        direct = options["guarantee"] == AT_LEAST_ONCE
        return DirectStreamWriter(options) if direct else StagedStreamWriter(options)

    def _write_options(self, schema: StructType, overwrite: bool) -> Options:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use the mode append")
        options = Options(self.options)
        options.check_use("write")
        topics = options["topic"]
        if len(topics) > 1:
            raise ConfigError(f"option topic: one topic is wanted, not {len(topics)}")
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        if options["stagingFolder"] and options["guarantee"] == AT_LEAST_ONCE:
            raise ConfigError("option stagingFolder is of no use with guarantee at_least_once")
        check_schema(types, topics[0] if topics else None)
        return options

    def _read_options(self, use: str, schema: StructType | None) -> Options:
        options = Options(self.options)
        if schema is not None:
            _check_own(schema, options)
        options.check_use(use)
        options.check_topics()
        options.check_limits()
        check_ledgers(options)
        check_decryption(options)
        return options


def _check_own(schema: StructType, options: Options) -> None:
    """Refuse columns that somebody wishes for: Spark would take ours for them.

    Raises:
        ConfigError: saying how columns are chosen.
    """
    wished = [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]
    ours = [f"{column.name} {column.spark}" for column in options.columns]
    if wished != ours:
        raise ConfigError(
            f"topics have columns of their own, {', '.join(ours)}, not {', '.join(wished)}: leave "
            "out the schema, choose with the option columns, and cast what has been read"
        )


def keeps_plans_apart() -> bool:
    """Whether this Spark plans every query by itself.

    Up to 4.3 a plan that was made with the filters of one query serves the next query over the
    same DataFrame, too, which then misses rows. The release that ended this brought `pushLimit`.
    """
    return hasattr(DataSourceReader, "pushLimit")


class _FiltersIfAny:
    """`pushFilters` for Spark's planner, whether filters are handed down or not.

    A reader with a method of this name is refused where `spark.sql.python.filterPushdown.enabled`
    is off, and nobody tells a reader whether it is. To whoever compares, this is the method that
    does nothing; where filters are handed down, they are taken if that can do no harm.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._reader.takes_filters:
            self._reader.filters = RowFilters(filters)
        return filters


class BatchReader(DataSourceReader):
    """Reads ranges of topics, once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.filters = RowFilters()
        self.takes_filters = options["filterPushdown"] == ALWAYS or keeps_plans_apart()
        """Whether what Spark hands down is looked at."""

    @property
    def pushFilters(self) -> _FiltersIfAny:  # noqa: N802 - Spark's name
        """See `DataSourceReader.pushFilters`; Spark looks at the rows again."""
        return _FiltersIfAny(self)

    def partitions(self) -> list[InputPartition]:
        """See `DataSourceReader.partitions`; asks, and changes nothing."""
        options = self._options
        ranges = batch_ranges(options.access.view(), options, self.filters)
        return partitions_of(tasks_of(ranges, options, self.filters))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader.read`."""
        return read_task(self._options, partition, self.filters)
