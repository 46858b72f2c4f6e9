"""Planted bugs of what comes after a metadata store was replaced for good."""

import asyncio
from collections.abc import Sequence
from typing import Any

from anabranch.errors import Fenced
from anabranch.managed_ledger.owned_node import OwnedNode
from anabranch.metadata.announced import Announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.succession import OpenStore, Successor
from anabranch.migrations.engine.steps import Blocker, Plan
from anabranch.migrations.freeze_copy.outsiders import Outsiders
from anabranch.migrations.freeze_copy.planning import Survey
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.migrations.freeze_copy.tail import Tail
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.setting import Setting
from anabranch.testing.planted import original, planted


@planted(
    "successor_is_not_looked_for",
    target="anabranch.metadata.switchable.succession:_successor_among",
)
async def successor_is_not_looked_for(
    others: Sequence[str], url: str, open_store: OpenStore
) -> str | None:
    """A server whose store is gone does not look whether another one has replaced it."""
    return None


@planted(
    "old_store_is_kept_for_ever",
    target="anabranch.server.replaceable_metadata:ReplaceableMetadata._leave_for_good",
)
async def old_store_is_kept_for_ever(self: ReplaceableMetadata) -> None:
    """A process goes on asking the store that was left for good."""
    await asyncio.Event().wait()


@planted(
    "outsiders_work_on_left_stores",
    target="anabranch.server.replaced_metadata:refuse_replaced",
)
async def outsiders_work_on_left_stores(store: MetadataStore, url: str) -> None:
    """A server that takes no part does not look whether its store was replaced."""


@planted(
    "successor_is_not_named",
    target="anabranch.metadata.switchable.succession:successor_of",
)
async def successor_is_not_named(store: MetadataStore, kind: str) -> Successor | None:
    """A server starts on a store although its journal says that it was left."""
    return None


@planted(
    "plan_forgets_who_was_not_restarted",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy.plan",
)
async def plan_forgets_who_was_not_restarted(self: FreezeCopy, parameters: dict[str, str]) -> Plan:
    """A store is replaced again under processes that have no part in it."""
    plain: Any = original("plan_forgets_who_was_not_restarted")
    found: Plan = await plain(self, parameters)
    kept = [each for each in found.blockers if "restart it" not in each.why]
    return Plan(found.parameters, found.figures, found.notes, kept)


@planted(
    "outsiders_are_overlooked",
    target="anabranch.migrations.freeze_copy.outsiders:Outsiders.see",
)
def outsiders_are_overlooked(self: Outsiders, path: str, session: int) -> None:
    """A store is replaced under brokers and bookies that go on with the old one."""


@planted(
    "owner_compares_versions_of_two_stores",
    target="anabranch.managed_ledger.owned_node:OwnedNode.check",
)
async def owner_compares_versions_of_two_stores(self: OwnedNode) -> None:
    """Who owned a topic before the switch takes the new store's version for another owner's."""
    if not await self._is_as_written():
        raise Fenced(f"{self.path} was written by another owner")


@planted(
    "silent_source_stays_unsealed",
    target="anabranch.server.replaceable_metadata:ReplaceableMetadata._seal_when_it_is_back",
)
async def silent_source_stays_unsealed(self: ReplaceableMetadata, announced: Announced) -> None:
    """A source that did not answer when it was left is used by whoever starts on it later."""


@planted(
    "plan_makes_the_target",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy._found_at",
)
async def plan_makes_the_target(self: FreezeCopy, url: str) -> list[str]:
    """Who only asks what would be done has the target's root made."""
    target = await self._open_store(url)
    try:
        return await self._occupied_by(target)
    finally:
        await target.close()


@planted(
    "last_changes_are_not_brought_back",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy._complete_back",
)
async def last_changes_are_not_brought_back(self: FreezeCopy, tail: Tail) -> None:
    """A rollback goes on with the source as the copying back has left it some time ago."""


@planted("tenants_stay_behind", target="anabranch.migrations.freeze_copy.tail:stays_behind")
def tenants_stay_behind(path: str) -> bool:
    """What Pulsar can keep in a configuration store is left to whoever replaces that."""
    found: bool = original("tenants_stay_behind")(path)
    return found or path.startswith("/admin/policies/")


@planted(
    "missing_policies_are_overlooked",
    target="anabranch.migrations.freeze_copy.planning:Survey.all_blockers",
)
def missing_policies_are_overlooked(self: Survey) -> list[Blocker]:
    """A store of topics alone is replaced as if it were whole."""
    return self.blockers


@planted(
    "configuration_store_is_ignored",
    target="anabranch.server.setting:Setting.accept",
)
def configuration_store_is_ignored(self: Setting, value: object) -> object:
    """A configuration store is taken from the settings, and never looked into."""
    if self.name == "configuration_metadata_url":
        return value
    return original("configuration_store_is_ignored")(self, value)


@planted(
    "targets_are_taken_on_trust",
    target="anabranch.metadata.switchable.reserved:check_prepared",
)
async def targets_are_taken_on_trust(store: MetadataStore, announced: Announced) -> None:
    """Whatever answers at the address of a target is taken for the one that others have."""


@planted(
    "successors_are_taken_on_trust",
    target="anabranch.metadata.switchable.succession:_check_came_by",
)
async def successors_are_taken_on_trust(attempt: str, url: str, store: MetadataStore) -> None:
    """Whatever answers at the address of a successor is taken for the one that was led to."""


@planted("private_targets_are_taken", target="anabranch.server.sole_server:refuse_private")
def private_targets_are_taken(metadata_url: str) -> None:
    """A store that each process has for itself may replace one that they share."""
