"""Planted bugs of a configuration store beside the metadata store."""

from collections.abc import Sequence

from anabranch.admin.endpoints import Call
from anabranch.metadata.border import Border
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.store import Operation as Write
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.steps import Blocker
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
def guards_are_asked_elsewhere(self: PartedStore, operation: Write) -> MetadataStore:
    """A guard of one store is looked at in the other, which has no such node."""
    return self.part_of(operation.path)


@planted("wrong_store_is_replaced", target="anabranch.admin.metadata_migration:_operation")
def wrong_store_is_replaced(call: Call) -> Operation:
    """Whoever asks for the configuration store has the metadata store replaced."""
    operation = call.served.metadata_migration
    assert operation is not None
    return operation


@planted("brokers_apart_are_overlooked", target="anabranch.server.metadata_migration:brokers_apart")
async def brokers_apart_are_overlooked(
    local: MetadataStore, configuration: MetadataStore
) -> Sequence[Blocker]:
    """A configuration store is replaced under brokers that go on with the old one."""
    return ()


@planted("any_configuration_will_do", target="anabranch.server.configuration_store:check_belongs")
async def any_configuration_will_do(local: MetadataStore, configuration: MetadataStore) -> None:
    """A broker serves topics with the tenants and policies of others."""


@planted("owners_ask_both_stores", target="anabranch.ownership.cluster_ownership:part_holding")
def owners_ask_both_stores(store: MetadataStore, prefix: str) -> MetadataStore:
    """Who asks for an owner waits for a store that has nothing to do with owners."""
    return store
