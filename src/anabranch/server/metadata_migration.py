"""How a server's metadata store is replaced: who this server is, and what it may be replaced by."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch import __version__
from anabranch.errors import AnabranchError, InputError
from anabranch.metadata.announced import Announced, Report
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.operation import Operation, nobody
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.steps import Blocker
from anabranch.migrations.freeze_copy.planning import refuse_same_store
from anabranch.ownership import BrokerAddress
from anabranch.runtime import Runtime
from anabranch.server.configuration_store import brokers_apart
from anabranch.server.metadata_stores import MetadataInUse
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.settings import Settings
from anabranch.server.stores import Stores
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


@dataclass(frozen=True, slots=True)
class Migrations:
    """What can be asked of a server about replacing each of its stores; None if it cannot be."""

    metadata: Operation | None
    configuration: Operation | None = None
    """None also if the configuration is in the metadata store."""

    def all(self) -> list[Operation]:
        """Those that there are."""
        return [each for each in (self.metadata, self.configuration) if each is not None]


def migrations_of(stores: Stores, runtime: Runtime, settings: Settings) -> Migrations:
    """What can be asked of a server that has these stores open."""
    local, configuration = stores.local, stores.configuration
    if configuration is None:
        return Migrations(migration_of(local.replaceable, runtime, settings))

    async def blockers() -> Sequence[Blocker]:
        return await brokers_apart(local.store, configuration.store)

    return Migrations(
        migration_of(local.replaceable, runtime, settings, "metadata", configuration),
        migration_of(
            configuration.replaceable, runtime, settings, "configuration", local, blockers
        ),
    )


def migration_of(
    replaceable: ReplaceableMetadata | None,
    runtime: Runtime,
    settings: Settings,
    of: str = "",
    beside: MetadataInUse | None = None,
    blockers: Callable[[], Awaitable[Sequence[Blocker]]] = nobody,
) -> Operation | None:
    """What can be asked about replacing one store, which is not to become a part of another."""
    if replaceable is None:
        return None
    allowed = _only(settings.metadata_migration_targets.split())

    def check(parameters: Mapping[str, str]) -> None:
        allowed(parameters)
        if beside is not None:
            refuse_same_store(beside.url(), parameters["target"])

    return Operation(
        replaceable.steps,
        replaceable.journal,
        runtime.entropy,
        check=check,
        blockers=blockers,
        of=of,
    )


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
    """What is shown of operations among the server's figures, read anew now and then."""

    def __init__(self) -> None:
        self._statuses: dict[Operation, Status] = {}

    async def keep_up(self, operation: Operation) -> None:
        """Read one of them on and on; what cannot be read stays as it was."""
        before: Announced | None = None
        while True:
            try:
                # An attempt may begin and end between two looks.
                now, is_running = await operation.announced(), await operation.is_running()
                if is_running or now != before or operation not in self._statuses:
                    self._statuses[operation] = await operation.status()
                before = now
            except AnabranchError as error:
                _log.warning("migration_not_read", reason=str(error))
            await asyncio.sleep(MIGRATION_FIGURES_S)

    def metrics(self) -> Iterable[Metric]:
        """The figures as they were last read."""
        by_name: dict[str, Metric] = {}
        for status in self._statuses.values():
            for metric in status.metrics():
                known = by_name.setdefault(metric.name, replace(metric, samples=()))
                samples = (*known.samples, *metric.samples)
                by_name[metric.name] = replace(known, samples=samples)
        return by_name.values()
