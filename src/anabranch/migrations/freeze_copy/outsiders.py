"""Who uses a store and is not ours: who can be led to another one, and who cannot. Pure.

Brokers and bookies are known by their nodes, whoever made them. One that belongs to the session of
a registration below `PARTICIPANTS_PATH` obeys Pulsar's flag. Any other would go on with the store
that all have left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.metadata.announced import Report
from anabranch.metadata.paths import join, parent_of
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.steps import Blocker
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.foreign_flag import (
    FLAG_PATH,
    FOLLOWED_TO,
    PARTICIPANTS_PATH,
    Flag,
    may_follow,
)
from anabranch.ownership.addresses import BROKERS

BOOKIE: Final = "bookie"
BROKER: Final = "broker"
UNKNOWN: Final = "process"
_BOOKIES: Final = ("/available", "/available/readonly")
_ITS_OWN_WAY: Final = (
    "does not obey Pulsar's migration flag: it is older than that, uses BookKeeper's own driver "
    "instead of metadata-store:, or took part in an attempt that came to nothing, or lost its "
    "session since it started"
)
_RISKS: Final = (
    "is not ours and obeys Pulsar's migration flag, but writes past it: what it writes to the old "
    "store in the first minute is applied or reported, later writes are lost. Stop it, or say "
    "accept_foreign_risk"
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """One process that is not ours and obeys the flag."""

    name: str
    role: str
    registered: str
    """The name of its registration."""
    node: str = ""
    """The path of the node by which others find it; empty if it has none."""

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


def places_of(node: str) -> tuple[str, ...]:
    """Where a process may be found: a bookie that can take no more is in another folder."""
    parent, name = parent_of(node), node.rpartition("/")[2]
    writable, readonly = _BOOKIES
    if parent.endswith(readonly):
        return node, join(parent_of(parent), name)
    if parent.endswith(writable):
        return node, join(join(parent, "readonly"), name)
    return (node,)


def flag_in_use(flag: Flag) -> list[Blocker]:
    """What stands against it if Pulsar's flag says that something is under way, or was done."""
    if may_follow(flag.phase, Outward.PREPARATION):
        return []
    return [
        Blocker(
            FLAG_PATH,
            f"says {flag.phase.value} to {shown(flag.target_url or '')}: Pulsar's own migration "
            "uses it. Wait for its end; after COMPLETED this store is left",
        )
    ]


class Outsiders:
    """Sees the nodes of sessions, one by one."""

    def __init__(
        self, reports: Sequence[Report], target_url: str = "", *, accepts_risk: bool = False
    ) -> None:
        """With what everybody of ours says who takes part, and where to it goes."""
        self._ours = {report.id.rpartition("-")[0] for report in reports}
        self._target_url = target_url
        self._accepts_risk = accepts_risk
        self._registered: dict[int, str] = {}
        self._nodes: dict[int, str] = {}
        """Of sessions, the node by which others find a process."""
        self._bookies: dict[str, int] = {}
        self._brokers: dict[str, int] = {}

    def see(self, path: str, session: int) -> None:
        """Take in a node that belongs to a session."""
        name, parent = path.rpartition("/")[2], parent_of(path)
        if parent == PARTICIPANTS_PATH:
            self._registered[session] = name
        elif parent == BROKERS and name not in self._ours:
            self._brokers[name], self._nodes[session] = session, path
        elif parent.endswith(_BOOKIES):
            self._bookies[name], self._nodes[session] = session, path

    def foreign(self) -> list[Foreign]:
        """All who can be led, by name."""
        known = {
            **{session: (name, BROKER) for name, session in self._brokers.items()},
            **{session: (name, BOOKIE) for name, session in self._bookies.items()},
        }
        found = []
        for session, registered in self._registered.items():
            name, role = known.get(session, (registered, UNKNOWN))
            found.append(Foreign(name, role, registered, self._nodes.get(session, "")))
        return sorted(found, key=lambda each: (each.role, each.name))

    def blockers(self) -> Iterator[Blocker]:
        """Who stands against it, and what can be done."""
        for name, session in sorted(self._bookies.items()):
            if session not in self._registered:
                yield Blocker(
                    name,
                    f"is a bookie that {_ITS_OWN_WAY}. Restart it on Pulsar's metadata driver, or "
                    "let it have a store of its own",
                )
        for name, session in sorted(self._brokers.items()):
            if session not in self._registered:
                yield Blocker(
                    name,
                    "is a broker that takes no part: it is ours and its setting "
                    f"metadata_migration_targets is empty, or it {_ITS_OWN_WAY}. Stop it",
                )
        for each in self.foreign():
            if not self._target_url.startswith(FOLLOWED_TO):
                yield Blocker(each.name, f"is a {each.role} that can be led to Oxia alone")
            elif each.role != BOOKIE and not self._accepts_risk:
                starting = " (if it is only starting, wait)" if each.role == UNKNOWN else ""
                yield Blocker(each.name, f"is a {each.role} that {_RISKS}{starting}")

    def notes(self) -> list[str]:
        """What a plan says of those who can be led."""
        found = self.foreign()
        if not found:
            return []
        return [
            f"{', '.join(map(str, found))}: not ours, and led by Pulsar's migration flag. There is "
            "no way back after the switch. Restart each with the new store's URL after finalize, "
            "and also if the attempt comes to nothing"
        ]
