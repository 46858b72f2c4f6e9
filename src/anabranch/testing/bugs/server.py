"""Planted bugs of `anabranch.server`, of its settings and of its command line."""

import asyncio
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch.admin import Served
from anabranch.broker import Broker
from anabranch.broker.publish_latency import Done, PublishLatency
from anabranch.broker.topic import Topic
from anabranch.managed_ledger.storage_figures import StorageFigures
from anabranch.policies import DispatchRate
from anabranch.server.assembly import Standalone
from anabranch.server.settings import SETTINGS, Settings, SettingValue
from anabranch.server.short_collections import ShortCollections
from anabranch.telemetry.metrics import Metric
from anabranch.testing.planted import original, planted

_ASSEMBLY = "anabranch.server.assembly:Standalone"
_SOURCES = "anabranch.server.settings_sources"
_COLLECTIONS = "anabranch.server.short_collections"


@planted("ready_while_it_stops", target=f"{_ASSEMBLY}.close")
async def ready_while_it_stops(self: Standalone) -> None:
    """Nobody is told that the server is going away."""
    self._door.shut()
    await self._held.aclose()


@planted("failed_stores_are_not_watched", target=f"{_ASSEMBLY}._watch_stores")
async def failed_stores_are_not_watched(self: Standalone) -> None:
    """A server goes on with a store that has failed."""
    del self
    await asyncio.Event().wait()


@planted("health_tries_nothing", target=f"{_ASSEMBLY}.why_unhealthy")
async def health_tries_nothing(self: Standalone) -> str | None:
    """A server is healthy as long as nothing was reported."""
    failure = self._stores.failure()
    return None if failure is None else str(failure)


@planted("health_forgets_readiness", target="anabranch.admin.health:why_not_healthy")
async def health_forgets_readiness(served: Served) -> str | None:
    """A server that is starting is healthy."""
    return await served.why_unhealthy()


@planted("metrics_have_other_names", target="anabranch.server.broker_metrics:broker_metrics")
def metrics_have_other_names(broker: Broker, *, cluster: str, each_topic: bool) -> Iterable[Metric]:
    """Dashboards made for Pulsar find nothing."""
    for metric in original("metrics_have_other_names")(
        broker, cluster=cluster, each_topic=each_topic
    ):
        yield replace(metric, name=metric.name.replace("pulsar_", "anabranch_"))


@planted("environment_wins_over_flags", target=f"{_SOURCES}:load_settings")
def environment_wins_over_flags(
    *,
    flags: Mapping[str, SettingValue | None],
    environment: Mapping[str, str],
    config_file: str | None = None,
) -> Settings:
    """A flag does not count where a variable says something else."""
    kept = {n: value for n, value in flags.items() if SETTINGS[n].variable not in environment}
    found: Settings = original("environment_wins_over_flags")(
        flags=kept, environment=environment, config_file=config_file
    )
    return found


@planted("unknown_keys_are_ignored", target=f"{_SOURCES}:_from_file")
def unknown_keys_are_ignored(path: str) -> dict[str, SettingValue]:
    """A misspelt key of the file is passed over."""
    document = tomllib.loads(Path(path).read_text())
    return {key: SETTINGS[key].accept(document[key]) for key in document if key in SETTINGS}


@planted("unknown_variables_are_ignored", target=f"{_SOURCES}:_from_environment")
def unknown_variables_are_ignored(environment: Mapping[str, str]) -> dict[str, SettingValue]:
    """A misspelt variable is passed over."""
    known = {setting.variable for setting in SETTINGS.values()}
    kept = {name: value for name, value in environment.items() if name in known}
    found: dict[str, SettingValue] = original("unknown_variables_are_ignored")(kept)
    return found


@planted("reference_lacks_a_setting", target="anabranch.server.settings_reference:render")
def reference_lacks_a_setting() -> str:
    """The page of settings is not made from all of them."""
    page = str(original("reference_lacks_a_setting")())
    return "".join(line for line in page.splitlines(keepends=True) if "--web-port" not in line)


@planted("command_lacks_flags", target="anabranch.cli.standalone:standalone")
def command_lacks_flags(config: str | None, **flags: str | int | float | bool | None) -> None:
    """Settings cannot be given as flags."""
    original("command_lacks_flags")(config, **flags)


@planted("settings_of_policies_do_nothing", target="anabranch.server.policy_defaults:DispatchRate")
def settings_of_policies_do_nothing(**_: int) -> DispatchRate:
    """The rate of dispatch is what it is, whatever an operator chooses."""
    return DispatchRate()


@planted("survivors_are_looked_at_again", target=f"{_COLLECTIONS}:ShortCollections._collected")
def survivors_are_looked_at_again(self: ShortCollections, phase: str, info: dict[str, Any]) -> None:
    """Every full collection of garbage looks at everything that was made since the start."""
    del self, phase, info


@planted("what_is_aside_stays_for_good", target=f"{_COLLECTIONS}:ShortCollections.look")
def what_is_aside_stays_for_good(self: ShortCollections) -> None:
    """What was put aside is never looked at again, however much was closed."""
    del self


@planted("topics_are_added_up", target="anabranch.server.broker_metrics:topic_metrics")
def topics_are_added_up(
    topics: Sequence[Topic], *, cluster: str, each_topic: bool
) -> Iterable[Metric]:
    """No topic has figures of its own."""
    del each_topic
    found: Iterable[Metric] = original("topics_are_added_up")(
        topics, cluster=cluster, each_topic=False
    )
    return found


@planted(
    "sizes_of_entries_are_not_counted",
    target="anabranch.managed_ledger.storage_figures:StorageFigures.wrote",
)
def sizes_of_entries_are_not_counted(self: StorageFigures, size: int, began_s: float) -> None:
    """All entries are taken for small ones."""
    original("sizes_of_entries_are_not_counted")(self, min(size, 1), began_s)


@planted("latency_is_never_sampled", target="anabranch.broker.publish_latency:PublishLatency.timed")
def latency_is_never_sampled(self: PublishLatency, done: Done) -> Done:
    """How long storing takes stays unknown."""
    del self
    return done


@planted("plain_ports_stay_open", target="anabranch.server.assembly:Standalone._listen")
async def plain_ports_stay_open(self: Standalone) -> None:
    """Clients can still come without TLS."""
    settings, self._settings = self._settings, replace(self._settings, plain_ports=True, port=0)
    await original("plain_ports_stay_open")(self)
    self._settings = settings
