"""Engines for bulk work that a server was given; Spark is imported when it is first asked."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from anabranch.errors import ConfigError
from anabranch.metadata.credentials import Credentials
from anabranch.migrations.engine.bulk import (
    PLAIN_COMPARISON,
    PLAIN_COPY,
    BulkEngine,
    CompareResult,
    CompareWishes,
    CopyResult,
    CopyWishes,
    OnNodes,
    StorePlace,
    no_news,
)

SPARK: Final = "spark"
T = TypeVar("T")


def bulk_engines(master: str, credentials: Credentials) -> Mapping[str, BulkEngine]:
    """The engines of a server, by name; `master` is where Spark runs, or empty."""
    return {SPARK: SparkWhenAsked(master, credentials)} if master else {}


class SparkWhenAsked:
    """See `BulkEngine`. Every piece of work has a session of Spark for itself alone.

    Java takes seconds to start and hundreds of megabytes to run, for work that comes once in years.
    """

    def __init__(self, master: str, credentials: Credentials) -> None:
        self._master = master
        self._credentials = credentials

    async def copy(
        self,
        source: StorePlace,
        target: StorePlace,
        prefix: str = "/",
        wishes: CopyWishes = PLAIN_COPY,
        on_nodes: OnNodes = no_news,
    ) -> CopyResult:
        """See `BulkEngine.copy`."""
        return await self._on_a_thread(
            lambda engine: engine.copy(source, target, prefix, wishes, on_nodes)
        )

    async def compare(
        self,
        left: StorePlace,
        right: StorePlace,
        prefix: str = "/",
        wishes: CompareWishes = PLAIN_COMPARISON,
        on_nodes: OnNodes = no_news,
    ) -> CompareResult:
        """See `BulkEngine.compare`."""
        return await self._on_a_thread(
            lambda engine: engine.compare(left, right, prefix, wishes, on_nodes)
        )

    async def _on_a_thread(self, work: Callable[[BulkEngine], Coroutine[Any, Any, T]]) -> T:
        """Java is started and spoken to without waiting for it here: others use this loop."""
        return await asyncio.get_running_loop().run_in_executor(None, self._within, work)

    def _within(self, work: Callable[[BulkEngine], Coroutine[Any, Any, T]]) -> T:
        """Do something with a session.

        Raises:
            ConfigError: if Spark cannot run here.
            AnabranchError: as a task met it.
        """
        try:
            from pyspark_anabranch.failures import failures_of_spark
            from pyspark_anabranch.jobs.spark_bulk import SparkBulk
            from pyspark_anabranch.session import spark_session
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error.name} is not installed: pip install 'anabranch[spark]'"
            ) from error
        with failures_of_spark():
            session = spark_session(self._master, {"spark.log.level": "ERROR"})
            try:
                return asyncio.run(work(SparkBulk(session, self._credentials)))
            finally:
                session.stop()
