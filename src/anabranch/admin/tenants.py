"""Tenants: who administers them, and on which clusters their namespaces may be."""

from typing import Final

from anabranch.admin.endpoints import Call, Endpoint
from anabranch.admin.refusals import RestRefused
from anabranch.errors import NotEmpty, NotFound
from anabranch.policies import TenantInfo, to_json
from anabranch.policies.paths import CLUSTERS, TENANTS, tenant_path
from anabranch.security import Right

_ROOT: Final = "/admin/v2/tenants"
_ONE: Final = f"{_ROOT}/{{tenant}}"


async def list_tenants(call: Call) -> object:
    """The names, sorted."""
    return await call.served.metadata.children(TENANTS)


async def get_tenant(call: Call) -> object:
    """One tenant's document."""
    found = await call.documents.get(TenantInfo, tenant_path(call.tenant))
    if found is None:
        raise RestRefused(404, "Tenant does not exist")
    return to_json(found)


async def create_tenant(call: Call) -> None:
    """A new tenant."""
    info = await _checked(call)
    if not await call.documents.create(tenant_path(call.tenant), info):
        raise RestRefused(409, "Tenant already exist")


async def update_tenant(call: Call) -> None:
    """Other roles or clusters for a tenant."""
    path = tenant_path(call.tenant)
    if await call.documents.get(TenantInfo, path) is None:
        raise RestRefused(404, f"Tenant {call.tenant} not found")
    info = await _checked(call)
    try:
        await call.documents.change(TenantInfo, path, lambda _: info)
    except NotFound:
        raise RestRefused(404, f"Tenant {call.tenant} not found") from None


async def delete_tenant(call: Call) -> None:
    """The end of a tenant that has no namespaces."""
    path = tenant_path(call.tenant)
    if call.flag("force"):
        raise RestRefused(405, "Broker doesn't allow forced deletion of tenants")
    if await call.served.metadata.children(path):
        raise RestRefused(409, "The tenant still has active namespaces")
    try:
        if not await call.documents.delete(path):
            raise RestRefused(404, "Tenant doesn't exist")
    except NotEmpty:
        raise RestRefused(409, "The tenant still has active namespaces") from None


async def _checked(call: Call) -> TenantInfo:
    info = call.document(TenantInfo)
    if not info.allowed_clusters or not all(name.strip() for name in info.allowed_clusters):
        raise RestRefused(412, "Clusters cannot be empty or blank")
    known = await call.served.metadata.children(CLUSTERS)
    if not set(info.allowed_clusters) <= set(known):
        raise RestRefused(412, "Clusters do not exist")
    if any(not role.strip() or role != role.strip() for role in info.admin_roles):
        raise RestRefused(412, "AdminRoles cannot be blank or have blank edges")
    return info


TENANT_ENDPOINTS: Final = (
    Endpoint("GET", _ROOT, Right.SUPERUSER, list_tenants, "All tenants"),
    Endpoint("GET", _ONE, Right.ADMINISTER, get_tenant, "Roles and clusters of a tenant"),
    Endpoint("PUT", _ONE, Right.SUPERUSER, create_tenant, "Create a tenant"),
    Endpoint("POST", _ONE, Right.SUPERUSER, update_tenant, "Change a tenant"),
    Endpoint("DELETE", _ONE, Right.SUPERUSER, delete_tenant, "Delete a tenant without namespaces"),
)
