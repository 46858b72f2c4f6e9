"""`anabranch tenants`: who shares a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.admin_places import (
    Noun,
    Server,
)
from anabranch.cli.metadata_places import DryRunOption, print_fields, print_json

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient

app = Noun("Tenants: list, make, change and delete them.")
_Tenant = Annotated[str, typer.Argument(help="Name of the tenant.")]
_Clusters = Annotated[
    list[str] | None,
    typer.Option("--cluster", help="A cluster it may be in; again for more. Else: all."),
]
_Roles = Annotated[
    list[str] | None, typer.Option("--admin-role", help="Who administers it; again for more.")
]


@app.command("list")
def list_tenants(server: Server) -> None:
    """Print the names of all tenants."""
    server.names(server.ask(lambda admin: admin.tenants.names()))


@app.command()
def show(server: Server, tenant: _Tenant) -> None:
    """Print who administers a tenant, where it may be, and its namespaces."""

    async def work(admin: "AdminClient") -> dict[str, object]:
        info = await admin.tenants.info(tenant)
        return {
            "tenant": tenant,
            "admin_roles": list(info.admin_roles),
            "clusters": list(info.allowed_clusters),
            "namespaces": await admin.namespaces.names(tenant),
        }

    found = server.ask(work)
    if server.as_json:
        print_json(found)
        return
    print_fields(
        {
            name: value if isinstance(value, str) else ", ".join(value) or "none"  # type: ignore[arg-type]
            for name, value in found.items()
        }
    )


@app.command()
def create(
    server: Server,
    tenant: _Tenant,
    cluster: _Clusters = None,
    admin_role: _Roles = None,
) -> None:
    """Make a tenant."""

    async def work(admin: "AdminClient") -> None:
        clusters = cluster or await admin.clusters.names()
        await admin.tenants.create(tenant, clusters=clusters, admin_roles=admin_role or ())

    server.ask(work)
    server.done(f"created {tenant}", tenant=tenant)


@app.command()
def update(
    server: Server,
    tenant: _Tenant,
    cluster: _Clusters = None,
    admin_role: _Roles = None,
) -> None:
    """Change a tenant; what is not named stays."""

    async def work(admin: "AdminClient") -> None:
        info = await admin.tenants.info(tenant)
        await admin.tenants.update(
            tenant,
            clusters=cluster or info.allowed_clusters,
            admin_roles=admin_role if admin_role is not None else info.admin_roles,
        )

    server.ask(work)
    server.done(f"changed {tenant}", tenant=tenant)


@app.command()
def delete(server: Server, tenant: _Tenant, dry_run: DryRunOption = False) -> None:
    """Delete a tenant that has no namespaces."""

    async def work(admin: "AdminClient") -> list[str]:
        await admin.tenants.info(tenant)
        left = await admin.namespaces.names(tenant)
        if not dry_run:
            await admin.tenants.delete(tenant)
        return left

    left = server.ask(work)
    refused = f"{tenant} would be refused: it has {len(left)} namespaces" if left else ""
    server.deleted(tenant, dry_run=dry_run, refused=refused, tenant=tenant, namespaces=left)
