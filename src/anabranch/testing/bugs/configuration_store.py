"""Planted bugs of a configuration store beside the metadata store."""

from anabranch.metadata.border import Border
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import MetadataStore, Operation
from anabranch.testing.planted import planted


@planted("everything_is_local", target="anabranch.metadata.border:Border.is_beyond")
def everything_is_local(self: Border, path: str) -> bool:
    """Clusters, tenants and policies are written to the cluster's own store after all."""
    return False


@planted("admin_is_local_alone", target="anabranch.metadata.border:Border.is_above")
def admin_is_local_alone(self: Border, path: str) -> bool:
    """Whoever looks above the border sees one of the two stores."""
    return False


@planted("guards_are_asked_elsewhere", target="anabranch.metadata.parted:PartedStore._place_of")
def guards_are_asked_elsewhere(self: PartedStore, operation: Operation) -> MetadataStore:
    """A guard of one store is looked at in the other, which has no such node."""
    return self.part_of(operation.path)
