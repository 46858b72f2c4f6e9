"""Which live operation runs, and which may start beside it.

The rule is a table that depends on nothing; what runs is read from the journals in a metadata
store. It is here, below the operations themselves, so that whoever keeps something in the store can
ask.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata.announced import OPERATIONS, journal_path, read_announced
from anabranch.metadata.paths import join
from anabranch.metadata.store import MetadataStore


class LiveOperation(StrEnum):
    """What can be replaced under a running topic; the value names its journal."""

    METADATA = "metadata"
    """A metadata store by another one."""
    QUORUM = "quorum"
    """The metadata store by the cluster's own quorum."""
    STORAGE = "storage"
    """The cluster of bookies that new ledgers go to."""
    CLUSTER = "cluster"
    """The whole cluster, topic by topic."""
    LAYOUT = "layout"
    """The segments of one topic."""


ENDS: Final = frozenset({"finalized", "rolled back", "aborted", "failed"})
"""The phases of every operation after which nothing of it runs any more."""
_META, _QUORUM, _STORAGE = LiveOperation.METADATA, LiveOperation.QUORUM, LiveOperation.STORAGE
_CLUSTER, _LAYOUT = LiveOperation.CLUSTER, LiveOperation.LAYOUT
_ONE = "one of a kind at a time"
_SAME_STORE = "both replace the metadata store"
_JOURNAL = "a journal stays in its store: one that is left would take the other's journal along"
_PLACE = "both change where the messages of a topic are"
_SEGMENTS = "a topic that is handed over keeps its segments until it has arrived"
_APART: Final[Mapping[frozenset[LiveOperation], str]] = MappingProxyType(
    {
        frozenset({_META}): _ONE,
        frozenset({_QUORUM}): _ONE,
        frozenset({_STORAGE}): _ONE,
        frozenset({_CLUSTER}): _ONE,
        frozenset({_META, _QUORUM}): _SAME_STORE,
        frozenset({_META, _STORAGE}): _JOURNAL,
        frozenset({_META, _CLUSTER}): _JOURNAL,
        frozenset({_QUORUM, _STORAGE}): _JOURNAL,
        frozenset({_QUORUM, _CLUSTER}): _JOURNAL,
        frozenset({_STORAGE, _CLUSTER}): _PLACE,
        frozenset({_CLUSTER, _LAYOUT}): _SEGMENTS,
    }
)
"""Pairs that do not run side by side, and why; every other pair does.

The layout of a topic changes beside the layout of another one, and its owner sees to the rest. It
is written through the store in use like all else about the topic, and so it bears every other
change.
"""


@dataclass(frozen=True, slots=True)
class Running:
    """An operation that has begun and is not over."""

    kind: str
    attempt: str
    phase: str


def why_apart(asked: str, running: str) -> str:
    """Why an operation may not start while another runs; empty if it may."""
    try:
        pair = frozenset({LiveOperation(asked), LiveOperation(running)})
    except ValueError:
        return "this build does not know both of them"
    return _APART.get(pair, "")


def in_the_way(asked: str, running: Iterable[Running]) -> list[tuple[Running, str]]:
    """Of the operations that run, those beside which one may not start, and why.

    Others of its own kind are not among them: its journal says more about those.
    """
    return [
        (each, why)
        for each in running
        if each.kind != asked and (why := why_apart(asked, each.kind))
    ]


async def running_on(store: MetadataStore) -> list[Running]:
    """The operations whose journals in this store are not over, by name.

    Where a store is being replaced, journals are in the one that it was started on, whichever is in
    use meanwhile.

    Raises:
        FormatError: if a journal cannot be read, since it may be of one that runs.
    """
    await store.sync()
    found = []
    for kind in await store.children(OPERATIONS):
        node = await store.get(journal_path(kind))
        if node is None:
            continue
        try:
            announced = read_announced(node.value)
        except FormatError as error:
            raise FormatError(f"{join(OPERATIONS, kind)}: {error}") from error
        if announced.phase not in ENDS:
            found.append(Running(kind, announced.attempt, announced.phase))
    return found


def rules_as_table() -> str:
    """The rule for the documentation: what may be asked for, by what runs."""
    names = [kind.value for kind in LiveOperation]
    lines = [
        "| While this runs | " + " | ".join(f"`{name}`" for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for running in names:
        cells = ("refused" if why_apart(asked, running) else "starts" for asked in names)
        lines.append(f"| `{running}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)
