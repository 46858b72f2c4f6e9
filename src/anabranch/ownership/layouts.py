"""How namespaces are cut into bundles, read from their policies and kept while nothing changes."""

from typing import Final

from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.store import MetadataStore
from anabranch.ownership.bundles import NamespaceBundles, read_boundaries
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

_POLICIES: Final = ("/admin/local-policies", "/admin/policies")
"""The cluster's own are looked at first; a namespace in neither is one bundle."""

Boundaries = tuple[int, ...] | None


class Layouts:
    """The bundles of every namespace."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self._documents: list[MetadataCache[Boundaries]] = [
            MetadataCache(
                store, runtime, decode=read_boundaries, encode=_never_written, prefix=prefix
            )
            for prefix in _POLICIES
        ]
        self._cut: dict[str, tuple[Boundaries, NamespaceBundles]] = {}

    def start(self, tasks: Tasks) -> None:
        """Begin to listen to the store."""
        for documents in self._documents:
            documents.start(tasks)

    async def of(self, namespace: str) -> NamespaceBundles:
        """How a namespace is cut.

        Raises:
            FormatError: if its policies say nothing sensible.
        """
        found: Boundaries = None
        for prefix, documents in zip(_POLICIES, self._documents, strict=True):
            found = await documents.get(f"{prefix}/{namespace}")
            if found is not None:
                break
        known = self._cut.get(namespace)
        if known is None or known[0] != found:
            cut = NamespaceBundles(namespace, *(() if found is None else (found,)))
            known = self._cut[namespace] = found, cut
        return known[1]


def _never_written(boundaries: Boundaries) -> bytes:
    raise AssertionError(f"policies are written by others, not as {boundaries}")
