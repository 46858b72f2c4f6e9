"""What Pulsar keeps in a configuration store where there is one, and where that ends. Pure.

At and below these roots are clusters, tenants, policies of namespaces, how many partitions a topic
has, resource groups, and the mark that policies may not be changed: what the clusters of an
instance share. All else is a cluster's own.
"""

from collections.abc import Sequence
from typing import Final

from anabranch.metadata.paths import ROOT, ancestors_of

CONFIGURATION: Final = (
    "/admin/clusters",
    "/admin/flags",
    "/admin/partitioned-topics",
    "/admin/policies",
    "/admin/resourcegroups",
)


class Border:
    """Between two stores that are one tree to their callers."""

    def __init__(self, roots: Sequence[str] = CONFIGURATION) -> None:
        """None of the `roots` is within another."""
        self._roots = frozenset(roots)
        self._below = tuple(f"{root}/" for root in roots)
        self._above = frozenset({ROOT}.union(*map(ancestors_of, roots)))

    def is_beyond(self, path: str) -> bool:
        """Whether a path is at or below one of the roots."""
        return path.startswith(self._below) or path in self._roots

    def is_above(self, path: str) -> bool:
        """Whether both stores may have something below a path."""
        return path in self._above
