"""How a server's metadata store is replaced: who this server is, and what it may be replaced by."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch import __version__
from anabranch.errors import AnabranchError, InputError
from anabranch.metadata.announced import Report
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.status import Status
from anabranch.ownership import BrokerAddress
from anabranch.runtime import Runtime
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.settings import Settings
from anabranch.telemetry import get_logger
from anabranch.telemetry.metrics import Metric

MIGRATION_FIGURES_S: Final = 5.0
"""Between two looks at an operation for the figures."""
_log = get_logger("migrations")


def taking_part(address: BrokerAddress, settings: Settings) -> Report:
    """How this server is known to those who replace its store."""
    return Report(
        address.broker_id.replace("/", "_"), "broker", settings.reachable_host, __version__
    )


def migration_of(
    replaceable: ReplaceableMetadata | None, runtime: Runtime, settings: Settings
) -> Operation | None:
    """What can be asked of this server about replacing its store; None if it cannot be."""
    if replaceable is None:
        return None
    check = _only(settings.metadata_migration_targets.split())
    return Operation(replaceable.steps, replaceable.journal, runtime.entropy, check=check)


def _only(allowed: list[str]) -> Callable[[Mapping[str, str]], None]:
    def check(parameters: Mapping[str, str]) -> None:
        target = parameters.get("target", "")
        if not target:
            raise InputError("say what the store is to be replaced by: target")
        if target not in allowed:
            raise InputError(
                f"{shown(target)} is not in the setting metadata_migration_targets of this server: "
                "whoever configures it says which stores may be used"
            )

    return check


class MigrationFigures:
    """What is shown of an operation among the server's figures, read anew now and then."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._status: Status | None = None

    async def keep_up(self) -> None:
        """Read on and on; what cannot be read stays as it was."""
        is_over = False
        while True:
            try:
                is_running = await self._operation.is_running()
                if is_running or not is_over:
                    self._status = await self._operation.status()
                is_over = not is_running
            except AnabranchError as error:
                _log.warning("migration_not_read", reason=str(error))
            await asyncio.sleep(MIGRATION_FIGURES_S)

    def metrics(self) -> Iterable[Metric]:
        """The figures as they were last read."""
        return () if self._status is None else self._status.metrics()
