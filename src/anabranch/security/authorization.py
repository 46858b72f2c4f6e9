"""Decides who may do what. Nobody may do anything that is not granted.

A superuser may do everything, a tenant's administrators everything in it, and everybody else what
the namespace's document grants. A proxy and the one it speaks for must both be allowed.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from anabranch.errors import NotAuthorized
from anabranch.security.identity import Caller
from anabranch.security.rights import Resource, Right

_PRODUCE: Final = "produce"
_CONSUME: Final = "consume"
PREFIX_MODE: Final = "Prefix"
"""Of a namespace in which a role may use only subscriptions that begin with its name."""

Granted = Mapping[str, Set[str]]
"""Actions by role."""


@dataclass(frozen=True, slots=True)
class Grants:
    """What one namespace grants."""

    namespace: Granted = field(default_factory=dict)
    topics: Mapping[str, Granted] = field(default_factory=dict)
    """By full topic name."""
    subscriptions: Mapping[str, Set[str]] = field(default_factory=dict)
    """Roles by subscription; one that is not named is open to every consumer."""
    subscription_mode: str = "None"


class Directory(Protocol):
    """Where the documents of tenants and namespaces are looked up."""

    async def tenant_admins(self, tenant: str) -> Set[str]:
        """Return the roles that administer a tenant; none if there is no such tenant."""
        ...

    async def grants(self, namespace: str) -> Grants:
        """Return what a namespace grants; nothing if there is no such namespace."""
        ...


class Authorization:
    """The judge of one server."""

    def __init__(
        self,
        directory: Directory,
        *,
        superuser_roles: Iterable[str] = (),
        proxy_roles: Iterable[str] = (),
    ) -> None:
        self._directory = directory
        self._superusers = frozenset(superuser_roles)
        self._proxies = frozenset(proxy_roles)

    async def check(self, caller: Caller, right: Right, resource: Resource) -> None:
        """Let a call pass that is allowed.

        Raises:
            NotAuthorized: if it is not.
        """
        self.check_caller(caller)
        if right in (Right.ANYBODY, Right.KNOWN):
            return
        roles = [caller.role] if caller.original is None else [caller.role, caller.original]
        for role in roles:
            if not await self._may(role, right, resource):
                raise NotAuthorized(
                    f"role {role!r} may not {_words(right)} {resource}", right.value
                )

    def check_caller(self, caller: Caller) -> None:
        """Let a caller pass whose roles go together.

        Raises:
            NotAuthorized: for a proxy that names nobody, or somebody who is no proxy and does.
        """
        if caller.role in self._proxies:
            if not caller.original:
                raise NotAuthorized(f"proxy {caller.role!r} does not say for whom it asks")
            if caller.original in self._proxies:
                raise NotAuthorized(f"{caller.original!r} is itself a proxy")
        elif caller.original is not None and caller.original != caller.role:
            raise NotAuthorized(f"role {caller.role!r} is no proxy and may not speak for others")

    async def _may(self, role: str, right: Right, resource: Resource) -> bool:
        if role in self._superusers:
            return True
        if right is Right.SUPERUSER or not resource.tenant:
            return False
        if role in await self._directory.tenant_admins(resource.tenant):
            return True
        if right is Right.ADMINISTER or not resource.namespace:
            return False
        grants = await self._directory.grants(resource.namespace)
        allowed = _actions(grants, role, resource)
        if right in (Right.LOOK_UP, Right.LIST):
            return bool(allowed & {_PRODUCE, _CONSUME})
        if right is Right.PRODUCE:
            return _PRODUCE in allowed
        assert right in (Right.CONSUME, Right.DRAIN), f"{right} has no rule"
        return _CONSUME in allowed and _may_use(grants, role, resource.subscription)


def _actions(grants: Grants, role: str, resource: Resource) -> Set[str]:
    allowed = set(grants.namespace.get(role, ()))
    if resource.topic is None:
        return allowed
    topic = resource.topic
    whole = f"{topic.domain}://{topic.namespace_name}/{topic.partitioned_local}"
    for name in {str(topic): None, whole: None}:
        allowed |= grants.topics.get(name, {}).get(role, set())
    return allowed


def _may_use(grants: Grants, role: str, subscription: str) -> bool:
    if not subscription:
        return True
    granted = grants.subscriptions.get(subscription)
    if granted and role not in granted:
        return False
    return grants.subscription_mode != PREFIX_MODE or subscription.startswith(role)


def _words(right: Right) -> str:
    return {
        Right.LOOK_UP: "look up",
        Right.LIST: "list",
        Right.PRODUCE: "produce to",
        Right.CONSUME: "consume from",
        Right.DRAIN: "clear",
        Right.ADMINISTER: "administer",
        Right.SUPERUSER: "administer",
    }[right]
