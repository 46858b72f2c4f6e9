"""What replacing the metadata store would take, and what stands against it. Writes nothing."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from anabranch.errors import InputError
from anabranch.metadata.announced import stays_behind
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.metadata.transfer.sources import shown
from anabranch.metadata.zookeeper import addresses as zookeeper_addresses
from anabranch.migrations.engine.steps import Blocker
from anabranch.migrations.freeze_copy.limits import BLOCKERS_SHOWN_MAX, PACED_READS, READS_PER_COPY

LOCAL: Final = "local"
"""The engine that is no other: the driver itself."""
_CONFIGURATION: Final = ("/admin/clusters", "/admin/policies")
_TOPICS: Final = "/managed-ledgers/"
_ELSEWHERE: Final = (
    "has no clusters, tenants and policies, and yet there are topics: they are in a configuration "
    "store of its own (Pulsar: configurationMetadataStoreUrl). Name that in the setting "
    "configuration_metadata_url of every server, or copy it into this store first, while nobody "
    "changes it"
)
_STAY: Final = (
    "clusters, tenants and policies are in a configuration store of their own, and stay there"
)
_ALONE: Final = (
    "this is the configuration store: topics and ledgers are in the metadata store, and stay "
    "there. Of other clusters that use it, brokers that take part go along; those that do not "
    "cannot be seen from here: let them take part, or stop them first"
)
_RIGHTS: Final = "has access rights, which the target cannot hold: say drop_acls to leave them out"


class Configuration(Enum):
    """Where clusters, tenants and policies are, seen from the store that is replaced."""

    WITHIN = "within"
    """In it, as far as anybody was told."""
    APART = "apart"
    """In a store of their own."""
    ALONE = "alone"
    """It is that store."""


def rate_of(parameters: Mapping[str, str]) -> float | None:
    """How many nodes a second may be copied.

    Raises:
        InputError: if that is no rate.
    """
    limit = parameters.get("nodes_per_s")
    if not limit:
        return None
    try:
        rate = float(limit)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise InputError(f"nodes_per_s has to be a number above 0, not {limit[:80]}")
    return rate


def notes_on_engine(parameters: Mapping[str, str], engines: Collection[str]) -> list[str]:
    """What a plan says of the bulk engine that was asked for.

    Raises:
        InputError: if there is no such engine here.
    """
    name = parameters.get("bulk", LOCAL)
    if name == LOCAL:
        return []
    if name not in engines:
        known = ", ".join(sorted([LOCAL, *engines]))
        raise InputError(
            f"this server has no bulk engine {name[:80]!r}, only {known}: that of Spark needs "
            "the setting metadata_migration_spark"
        )
    return [f"{name} compares everything; the driver copies, and looks again at what may differ"]


def refuse_same_store(source_url: str, target_url: str) -> None:
    """Make sure that a store is not copied into itself.

    Raises:
        InputError: if one of two places is the other one, or within it.
        ConfigError: if an address makes no sense.
    """
    if target_url == source_url:
        raise InputError(f"{shown(target_url)} is the store that is in use")
    prefix = f"{zookeeper_addresses.SCHEME}:"
    if not (source_url.startswith(prefix) and target_url.startswith(prefix)):
        return
    source, target = map(zookeeper_addresses.parse_ensemble, (source_url, target_url))
    if not set(source.servers) & set(target.servers):
        return
    if is_within(source.chroot, target.chroot) or is_within(target.chroot, source.chroot):
        raise InputError(
            f"{shown(target_url)} is the store that is in use, or one of them is within the other: "
            "take a chroot beside it"
        )


@dataclass(slots=True)
class Survey:
    """Takes the nodes of the source one by one."""

    keeping: Keeping
    """What the target holds of a record."""
    drop_acls: bool
    where: Configuration = Configuration.WITHIN
    nodes: int = 0
    size_bytes: int = 0
    ephemerals: int = 0
    versions_changed: int = 0
    rights_dropped: int = 0
    configuration: int = 0
    """Of clusters, tenants and policies, which Pulsar can keep in another store."""
    has_topics: bool = False
    blockers: list[Blocker] = field(default_factory=list)
    blockers_left_out: int = 0

    def add(self, record: Record) -> None:
        """One more."""
        if stays_behind(record.path):
            return
        if record.session is not None:
            self.ephemerals += 1
            return
        self.nodes += 1
        self.configuration += record.path.startswith(_CONFIGURATION)
        self.has_topics = self.has_topics or record.path.startswith(_TOPICS)
        self.size_bytes += len(record.value)
        self.versions_changed += not self.keeping.keeps_version(record)
        if (why := self.keeping.why_not(record)) is not None:
            self._block(record.path, why)
        elif record.access and not self.keeping.access:
            self.rights_dropped += 1
            if not self.drop_acls:
                self._block(record.path, _RIGHTS)

    def _block(self, who: str, why: str) -> None:
        if len(self.blockers) < BLOCKERS_SHOWN_MAX:
            self.blockers.append(Blocker(who, why))
        else:
            self.blockers_left_out += 1

    def all_blockers(self) -> list[Blocker]:
        """The first of them, and how many more there are."""
        found = list(self.blockers)
        if self.blockers_left_out:
            found.append(Blocker("others", f"{self.blockers_left_out} more are in the way"))
        if self.where is Configuration.WITHIN and self.has_topics and not self.configuration:
            found.append(Blocker("/admin", _ELSEWHERE))
        return found

    def figures(self, read_s: float, nodes_per_s: float | None) -> dict[str, int | float | str]:
        """What was counted; the seconds are a guess by how long it took to count."""
        expected_s = READS_PER_COPY * read_s
        if nodes_per_s is not None:
            expected_s = max(expected_s, PACED_READS * self.nodes / nodes_per_s)
        return {
            "nodes": self.nodes,
            "bytes": self.size_bytes,
            "configuration": self.configuration,
            "ephemerals": self.ephemerals,
            "expected_s": round(expected_s, 1),
        }

    def notes(self) -> list[str]:
        """What will be different afterwards."""
        notes = []
        if self.where is Configuration.ALONE:
            notes.append(_ALONE)
        elif self.where is Configuration.APART:
            notes.append(_STAY)
        elif self.configuration:
            notes.append("clusters, tenants and policies are in this store, and go along")
        if not self.keeping.times:
            notes.append("times of nodes become those of the copy")
        if self.versions_changed:
            notes.append(
                f"{self.versions_changed} nodes get other versions; tokens that callers hold stay "
                "good"
            )
        if not self.keeping.sequences:
            notes.append("sequence counters may become larger, never smaller")
        if not self.keeping.indexes:
            notes.append("indexes are left out")
        if self.rights_dropped and self.drop_acls:
            notes.append(f"access rights of {self.rights_dropped} nodes are left out")
        if self.ephemerals:
            notes.append(f"{self.ephemerals} ephemeral nodes are made anew by their owners")
        return notes
