"""Looks up, for authorization, what the documents of tenants and namespaces grant."""

from collections.abc import Set
from typing import TypeVar

from anabranch.errors import FormatError
from anabranch.metadata.store import MetadataStore
from anabranch.policies import JsonDocument, NamespacePolicies, TenantInfo, decode
from anabranch.policies.paths import namespace_path, tenant_path
from anabranch.security.authorization import Grants

D = TypeVar("D", bound=JsonDocument)


class StoredGrants:
    """A `Directory` over the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def tenant_admins(self, tenant: str) -> Set[str]:
        """See `Directory.tenant_admins`."""
        node = await self._store.get(tenant_path(tenant))
        if node is None or not node.value:
            return frozenset()
        return frozenset(_decoded(TenantInfo, node.value, tenant).admin_roles)

    async def grants(self, namespace: str) -> Grants:
        """See `Directory.grants`."""
        node = await self._store.get(namespace_path(namespace))
        if node is None or not node.value:
            return Grants()
        policies = _decoded(NamespacePolicies, node.value, namespace)
        granted = policies.auth_policies
        return Grants(
            {role: frozenset(actions) for role, actions in granted.namespace_auth.items()},
            {
                topic: {role: frozenset(actions) for role, actions in roles.items()}
                for topic, roles in granted.topic_auth.items()
            },
            {name: frozenset(roles) for name, roles in granted.subscription_auth.items()},
            policies.subscription_auth_mode,
        )


def _decoded(kind: type[D], data: bytes, name: str) -> D:
    try:
        return decode(kind, data)
    except FormatError as error:
        raise FormatError(f"the document of {name} cannot be read: {error}") from error
