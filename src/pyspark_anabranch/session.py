"""A Spark session with the settings that the data source wants."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.errors import ConfigError
from pyspark_anabranch.environment import prepare
from pyspark_anabranch.limits import ARROW_BATCH_ROWS, SHUFFLE_PARTITIONS_PER_CORE
from pyspark_anabranch.shipping import is_elsewhere, packed_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Beside Java's heap, which the state of a long stream would fill.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
}
_MASTER: Final = re.compile(
    r"local|local\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\]|local-cluster\[[\d,\s]+\]|yarn|(spark|k8s)://.+"
)
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def settings_of(master: str) -> dict[str, str]:
    """Our settings of Spark where it runs there."""
    return {**SETTINGS, **(_LOCAL if master.startswith("local") else {})}


def check_master(master: str) -> None:
    """Refuse what names no place where Spark runs, before Java is started to find that out.

    Raises:
        ConfigError: saying what does.
    """
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            "a master of Spark is local[N], local[*], spark://host:port, k8s://… or yarn, "
            f"not {master!r}"
        )


def spark_session(
    master: str = "local[*,4]", settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """Make a session, or return the one there is.

    Args:
        master: where it runs; tasks of a cluster are sent this code. In `local[*,4]` a task is
            tried four times; plain `local[*]` ends a job with its first task that fails.
        settings: of Spark; they win over ours.

    Raises:
        ConfigError: if Spark cannot run here, in one line that says what to do.
    """
    check_master(master)
    prepare()
    from pyspark.sql import SparkSession  # not before somebody has said what is missing

    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("anabranch")
    for name, value in (settings_of(master) | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if settings is None or _SHUFFLE_PARTITIONS not in settings:
        cores = session.sparkContext.defaultParallelism  # nobody knows before it runs
        session.conf.set(_SHUFFLE_PARTITIONS, str(SHUFFLE_PARTITIONS_PER_CORE * cores))
    if is_elsewhere(master):
        session.sparkContext.addPyFile(packed_packages())
    return session
