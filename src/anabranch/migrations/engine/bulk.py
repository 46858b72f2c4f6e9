"""The contract of bulk work: copying a whole tree of metadata, and comparing two.

A migration asks a `BulkEngine` and does not know how the work is done: in this process
(`bulk_local`), or spread over the workers of Spark. Both give the same answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from anabranch.metadata.store import MetadataStore
from anabranch.metadata.transfer.sources import shown


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store of metadata."""

    url: str
    store: MetadataStore | None = field(default=None, repr=False, compare=False)
    """The store itself where this process has it open already; it is not closed. Work that is
    done by other processes refuses it."""

    @property
    def name(self) -> str:
        """What it is called in messages, without secrets."""
        return shown(self.url)


@dataclass(frozen=True, slots=True)
class CopyWishes:
    """How a copy is made."""

    overwrite: bool = False
    """Replace nodes that are others in the target; otherwise one is enough to refuse the copy."""
    drop_acls: bool = False
    """Go on without access rights where the target cannot hold them."""
    nodes_per_s: float | None = None
    """So many are written at most."""


PLAIN_COPY: Final = CopyWishes()


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy did. All nodes of the source are in the target when there is one."""

    nodes: int
    """Of the source, ephemeral ones left out."""
    copied: int
    """Of them written now; the others were in the target before."""
    overwritten: int = 0
    ephemerals: int = 0
    """Left out: those who own them make them anew."""
    versions_changed: int = 0
    """Nodes whose version the target could not keep."""

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "nodes": self.nodes,
            "copied": self.copied,
            "overwritten": self.overwritten,
            "ephemerals_left_out": self.ephemerals,
            "versions_changed": self.versions_changed,
        }


class Mismatch(StrEnum):
    """How a tree and its copy are not the same at a path."""

    MISSING = "missing"
    """Only in the left tree."""
    EXTRA = "extra"
    """Only in the right tree."""
    DIFFERS = "differs"
    CHANGED = "changed during the scan"
    """Somebody writes there faster than one can look; nothing can be said."""


@dataclass(frozen=True, slots=True, order=True)
class TreeMismatch:
    """One path at which two trees are not the same."""

    path: str
    kind: Mismatch
    fields: tuple[str, ...] = ()
    """What is not the same, if there is a node on both sides."""


@dataclass(frozen=True, slots=True)
class CompareWishes:
    """How two trees are compared."""

    ephemerals: bool = False
    """Compare nodes of sessions, too, which no copy has."""
    by_digest: bool = False
    """Compare digests of parts first and read only those again that differ. Sequence counters
    count only where both stores keep them exactly."""
    nodes_per_s: float | None = None
    """So many are read at most, of each tree."""


PLAIN_COMPARISON: Final = CompareWishes()


@dataclass(frozen=True, slots=True)
class CompareResult:
    """What a comparison found."""

    nodes_left: int
    nodes_right: int
    counts: Mapping[Mismatch, int]
    mismatches: tuple[TreeMismatch, ...]
    """The first of them, in path order."""
    settled: int = 0
    """Paths that were different when they were read, and the same when looked at again."""
    buckets: int = 0
    """Parts of the trees that were compared by digest; 0: everything was laid side by side."""
    buckets_read_again: int = 0

    @property
    def is_same(self) -> bool:
        """Whether nothing was found."""
        return not any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "nodes_left": self.nodes_left,
            "nodes_right": self.nodes_right,
            "counts": {kind.value: self.counts.get(kind, 0) for kind in Mismatch},
            "settled": self.settled,
            "buckets": self.buckets,
            "buckets_read_again": self.buckets_read_again,
            "mismatches": [
                {"path": found.path, "kind": found.kind.value, "fields": list(found.fields)}
                for found in self.mismatches
            ],
        }


def compare_result_of(fields: Mapping[str, Any]) -> CompareResult:
    """Undo `CompareResult.as_json`."""
    return CompareResult(
        fields["nodes_left"],
        fields["nodes_right"],
        {Mismatch(kind): count for kind, count in fields["counts"].items() if count},
        tuple(
            TreeMismatch(each["path"], Mismatch(each["kind"]), tuple(each["fields"]))
            for each in fields["mismatches"]
        ),
        fields["settled"],
        fields["buckets"],
        fields["buckets_read_again"],
    )


OnNodes = Callable[[int], None]
"""Told how many nodes of the work are done."""


def no_news(nodes: int) -> None:
    """For callers that do not want to know."""


class BulkEngine(Protocol):
    """Does work on whole trees."""

    async def copy(
        self,
        source: StorePlace,
        target: StorePlace,
        prefix: str = ...,
        wishes: CopyWishes = ...,
        on_nodes: OnNodes = ...,
    ) -> CopyResult:
        """See that the lasting nodes at or below a path are in the target as well as they can be.

        Nodes that are there already are left alone, so a copy that was interrupted is gone on with
        by asking again. The source must not be written to; what
        is written meanwhile may be missed, which only `compare` tells.

        Raises:
            ConflictError: if another node is in the way of one, and must not be overwritten.
            InputError: if the target cannot hold what the source has, or a place cannot be used.
            NotFound: if there is nothing to copy.
        """
        ...

    async def compare(
        self,
        left: StorePlace,
        right: StorePlace,
        prefix: str = ...,
        wishes: CompareWishes = ...,
        on_nodes: OnNodes = ...,
    ) -> CompareResult:
        """Lay a tree and its copy side by side.

        What the right store cannot keep is no difference. Both trees may be written to meanwhile:
        whatever is different is looked at again until it is the same, or stays as it is.
        """
        ...
