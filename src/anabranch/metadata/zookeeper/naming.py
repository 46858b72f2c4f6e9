"""How ZooKeeper's stats and changes look through the contract, and what is not shown. Pure."""

from typing import Final

from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import Event, EventKind, Revision, Stat, Version
from anabranch.metadata.zookeeper.replies import Change, ZStat
from anabranch.metadata.zookeeper.requests import WatchKind

EPOCH: Final = 0x7A6B
"""Marks numbers as ZooKeeper's. An ensemble has no identity that could be asked for."""
HIDDEN_PREFIX: Final = ".anabranch-"
"""Names that begin so are the store's own, at every level."""
INDEX_ROOT: Final = f"/{HIDDEN_PREFIX}indexes"
OPEN_COPIES_ROOT: Final = f"/{HIDDEN_PREFIX}open-copies"
PROBE: Final = f"/{HIDDEN_PREFIX}probe"
"""A node that is never made: only whether it could be is asked for."""
_SYSTEM: Final = "zookeeper"
_KINDS: Final[dict[int, EventKind]] = {
    WatchKind.CREATED: EventKind.CREATED,
    WatchKind.CHANGED: EventKind.MODIFIED,
    WatchKind.DELETED: EventKind.DELETED,
}


def revision_of(zxid: int) -> Revision:
    """A point of ZooKeeper's history."""
    return Revision(EPOCH, zxid)


def version_of(stat: ZStat) -> Version:
    """ZooKeeper counts from 0 in each life of a node; the zxid of its birth tells lives apart."""
    return Version(EPOCH, stat.version, stat.czxid)


def stat_of(path: str, stat: ZStat, session: int) -> Stat:
    """A stat as the contract has it, seen from a session."""
    return Stat(
        path,
        Version(EPOCH, stat.version, stat.czxid),
        Revision(EPOCH, stat.mzxid),
        stat.ctime,
        stat.mtime,
        *((True, stat.owner == session) if stat.owner and stat.ephemeral else (False, False)),
    )


def is_hidden(path: str, *, at_top: bool) -> bool:
    """Whether a path is the store's own, or, at the top of ZooKeeper, ZooKeeper's own."""
    if at_top and (path == f"/{_SYSTEM}" or path.startswith(f"/{_SYSTEM}/")):
        return True
    return f"/{HIDDEN_PREFIX}" in path


def shown(parent: str, names: list[str], *, at_top: bool) -> list[str]:
    """The names that callers see, in order."""
    system = _SYSTEM if at_top and parent == ROOT else None
    return sorted(name for name in names if name != system and not name.startswith(HIDDEN_PREFIX))


def events_of(changes: list[Change], *, at_top: bool) -> list[Event]:
    """What watches told, in the words of the contract."""
    found = [
        Event(_KINDS[change.kind], change.path, revision_of(change.zxid))
        for change in changes
        if change.kind in _KINDS and not is_hidden(change.path, at_top=at_top)
    ]
    return _in_path_order(found)


def _in_path_order(events: list[Event]) -> list[Event]:
    # A session's nodes go in one moment, which ZooKeeper tells in no order at all.
    place = 0
    while place < len(events):
        end = place + 1
        while end < len(events) and events[end].revision == events[place].revision:
            end += 1
        group = events[place:end]
        if len(group) > 1 and all(event.kind is EventKind.DELETED for event in group):
            events[place:end] = sorted(
                group, key=lambda event: (-event.path.count("/"), event.path)
            )
        place = end
    return events
