"""Namespaces: which there are, making and deleting them, their bundles, and who may use them.

The single policies of a namespace are in `namespace_policies`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from anabranch.admin.endpoints import Call, Endpoint, as_document
from anabranch.admin.policy_values import checked
from anabranch.admin.refusals import RestRefused
from anabranch.admin.topic_names import names_in, partitioned_names_in
from anabranch.errors import InputError, NotEmpty, NotFound
from anabranch.policies import (
    Bundles,
    LocalPolicies,
    NamespacePolicies,
    TenantInfo,
    even_bundles,
    given_bundles,
    to_json,
)
from anabranch.policies.namespaces import AuthPolicies
from anabranch.policies.paths import local_policies_path, namespace_path, tenant_path
from anabranch.security import Right

_ROOT: Final = "/admin/v2/namespaces/{tenant}"
_ONE: Final = f"{_ROOT}/{{namespace}}"
ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")


async def existing(call: Call) -> NamespacePolicies:
    """The policies of the namespace in the path.

    Raises:
        RestRefused: if there is no such namespace.
    """
    found = await call.documents.get(NamespacePolicies, namespace_path(call.namespace))
    if found is None:
        raise RestRefused(404, "Namespace does not exist")
    return found


async def change(call: Call, **changes: Any) -> None:
    """Change single fields of the policies of the namespace in the path."""
    await change_by(call, lambda old: replace(old, **changes))


async def change_by(call: Call, make: Callable[[NamespacePolicies], NamespacePolicies]) -> None:
    """The same by what they are when they are changed, whoever else changes them."""
    path = namespace_path(call.namespace)
    try:
        await call.documents.change(NamespacePolicies, path, make)
    except NotFound:
        raise RestRefused(404, "Namespace does not exist") from None


async def list_namespaces(call: Call) -> object:
    """The namespaces of a tenant."""
    if await call.documents.get(TenantInfo, tenant_path(call.tenant)) is None:
        raise RestRefused(404, "Tenant not found")
    names = await call.served.metadata.children(tenant_path(call.tenant))
    return [f"{call.tenant}/{name}" for name in names]


async def get_policies(call: Call) -> object:
    """Everything that was decided for a namespace."""
    return to_json(await existing(call))


async def create_namespace(call: Call) -> None:
    """A new namespace, with policies if the body has some."""
    path = namespace_path(call.namespace)
    tenant = await call.documents.get(TenantInfo, tenant_path(call.tenant))
    if tenant is None:
        raise RestRefused(404, "Tenant does not exist")
    body = call.json()
    wanted = NamespacePolicies() if body is None else as_document(NamespacePolicies, body)
    clusters = wanted.replication_clusters or (call.served.cluster,)
    if not set(clusters) <= set(tenant.allowed_clusters):
        raise RestRefused(403, f"Cluster {', '.join(clusters)} is not allowed for this tenant")
    checked(wanted)
    rules = wanted.retention, wanted.persistence, wanted.auto_topic_creation, wanted.inactive_topics
    for rule in rules:
        if rule is not None:
            checked(rule)
    bundles = _bundles(wanted.bundles)
    policies = replace(wanted, replication_clusters=clusters, bundles=bundles, deleted=False)
    if not await call.documents.create(path, policies):
        raise RestRefused(409, "Namespace already exists")
    await call.documents.create(local_policies_path(call.namespace), LocalPolicies(bundles=bundles))


def _bundles(wanted: Bundles | None) -> Bundles:
    if wanted is None or (not wanted.num_bundles and not wanted.boundaries):
        return even_bundles()
    try:
        if not wanted.boundaries:
            return even_bundles(wanted.num_bundles)
        found = given_bundles(wanted.boundaries)
        if wanted.num_bundles not in (0, found.num_bundles):
            raise InputError(f"numBundles is {wanted.num_bundles}, and not {found.num_bundles}")
        return found
    except InputError as error:
        raise RestRefused(400, str(error)) from None


async def delete_namespace(call: Call) -> None:
    """The end of a namespace that has no topics."""
    path = namespace_path(call.namespace)
    if not await call.served.metadata.exists(path):
        raise RestRefused(404, f"Namespace {call.namespace} does not exist.")
    if call.flag("force"):
        raise RestRefused(405, "Broker doesn't allow forced deletion of namespaces")
    if await names_in(call) or await partitioned_names_in(call):
        raise RestRefused(409, "Cannot delete non empty namespace")
    try:
        await call.documents.delete(path)
    except NotEmpty:
        raise RestRefused(409, "Cannot delete non empty namespace") from None
    await call.documents.delete(local_policies_path(call.namespace))


async def list_topics(call: Call) -> object:
    """The topics of a namespace, partitions one by one."""
    await existing(call)
    mode = call.query.get("mode", "PERSISTENT").upper()
    if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        raise RestRefused(400, f"mode {mode[:40]!r} is none of PERSISTENT, NON_PERSISTENT, ALL")
    return await names_in(call, mode)


async def layout_of(call: Call) -> Bundles:
    """How the namespace in the path is cut into ranges of hashes."""
    policies = await existing(call)
    local = await call.documents.get(LocalPolicies, local_policies_path(call.namespace))
    return (local.bundles if local is not None else None) or policies.bundles or even_bundles()


async def get_bundles(call: Call) -> object:
    """The bundles of a namespace."""
    found = await layout_of(call)
    return {"boundaries": list(found.boundaries), "numBundles": len(found.boundaries) - 1}


# --- permissions -----------------------------------------------------------------------------


async def get_permissions(call: Call) -> object:
    """What roles may do in a namespace."""
    granted = (await existing(call)).auth_policies.namespace_auth
    return {role: list(actions) for role, actions in granted.items()}


async def grant(call: Call) -> None:
    """Let a role do something in a namespace; what it could do before is replaced."""
    actions = _actions(call)
    role = _role(call)
    await _change_grants(call, namespace_auth=lambda old: {**old, role: actions})


async def revoke(call: Call) -> None:
    """Take back what a role may do in a namespace."""
    role = _role(call)
    await _change_grants(
        call, namespace_auth=lambda old: {name: old[name] for name in old if name != role}
    )


async def get_subscription_permissions(call: Call) -> object:
    """Which roles may use which subscriptions."""
    granted = (await existing(call)).auth_policies.subscription_auth
    return {name: list(roles) for name, roles in granted.items()}


async def grant_subscription(call: Call) -> None:
    """Let only these roles use a subscription."""
    roles = call.json()
    if not isinstance(roles, list) or not all(isinstance(role, str) and role for role in roles):
        raise RestRefused(400, "the body has to be a list of roles")
    name = call.subscription
    await _change_grants(
        call,
        subscription_auth=lambda old: {**old, name: (*old.get(name, ()), *roles)},
    )


async def revoke_subscription(call: Call) -> None:
    """Take a subscription from a role."""
    role, name = _role(call), call.subscription

    def without(old: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        left = tuple(each for each in old.get(name, ()) if each != role)
        kept = {each: old[each] for each in old if each != name}
        return {**kept, name: left} if left else kept

    await _change_grants(call, subscription_auth=without)


async def get_topic_permissions(call: Call) -> object:
    """What roles may do with a topic, by the namespace's grants and by its own."""
    granted = (await existing(call)).auth_policies
    merged: dict[str, list[str]] = {}
    for source in (granted.namespace_auth, granted.topic_auth.get(str(call.topic), {})):
        for role, actions in source.items():
            known = merged.setdefault(role, [])
            known += [action for action in actions if action not in known]
    return merged


async def grant_topic(call: Call) -> None:
    """Let a role do something with one topic."""
    actions, role, topic = _actions(call), _role(call), str(call.topic)
    await _change_grants(
        call, topic_auth=lambda old: {**old, topic: {**old.get(topic, {}), role: actions}}
    )


async def revoke_topic(call: Call) -> None:
    """Take back what a role may do with one topic."""
    role, topic = _role(call), str(call.topic)
    if role not in (await existing(call)).auth_policies.topic_auth.get(topic, {}):
        raise RestRefused(412, "Permissions are not set at the topic level")

    def without(old: Mapping[str, Mapping[str, tuple[str, ...]]]) -> dict[str, Any]:
        left = {name: actions for name, actions in old.get(topic, {}).items() if name != role}
        kept = {name: roles for name, roles in old.items() if name != topic}
        return {**kept, topic: left} if left else kept

    await _change_grants(call, topic_auth=without)


async def _change_grants(call: Call, **changes: Any) -> None:
    def changed(old: NamespacePolicies) -> NamespacePolicies:
        grants: AuthPolicies = old.auth_policies
        made = {name: alter(getattr(grants, name)) for name, alter in changes.items()}
        return replace(old, auth_policies=replace(grants, **made))

    try:
        path = namespace_path(call.namespace)
        await call.documents.change(NamespacePolicies, path, changed)
    except NotFound:
        raise RestRefused(404, "Namespace does not exist") from None


def _actions(call: Call) -> tuple[str, ...]:
    actions = call.json()
    known = isinstance(actions, list) and all(action in ACTIONS for action in actions)
    if not known or not actions:
        raise RestRefused(400, f"the body has to be a list of actions out of {', '.join(ACTIONS)}")
    return tuple(actions)


def _role(call: Call) -> str:
    role = call.names["role"]
    if not role.isprintable() or role != role.strip():
        raise RestRefused(412, "Role name is not valid")
    return role


def _row(
    method: str, path: str, serve: Any, words: str, right: Right = Right.ADMINISTER
) -> Endpoint:
    return Endpoint(method, f"{_ONE}{path}", right, serve, words)


_TOPIC_PERMISSIONS: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/permissions"
NAMESPACE_ENDPOINTS: Final = (
    Endpoint("GET", _ROOT, Right.ADMINISTER, list_namespaces, "The namespaces of a tenant"),
    _row("GET", "", get_policies, "The policies of a namespace"),
    _row("PUT", "", create_namespace, "Create a namespace"),
    _row("DELETE", "", delete_namespace, "Delete a namespace without topics"),
    _row("GET", "/topics", list_topics, "The topics of a namespace", Right.LIST),
    _row("GET", "/bundles", get_bundles, "The bundles of a namespace", Right.LIST),
    _row("GET", "/permissions", get_permissions, "What roles may do"),
    _row("POST", "/permissions/{role}", grant, "Let a role do something"),
    _row("DELETE", "/permissions/{role}", revoke, "Take back what a role may do"),
    _row(
        "GET", "/permissions/subscription", get_subscription_permissions, "Roles of subscriptions"
    ),
    _row(
        "POST",
        "/permissions/subscription/{subscription}",
        grant_subscription,
        "Give a subscription to roles",
    ),
    _row(
        "DELETE",
        "/permissions/{subscription}/{role}",
        revoke_subscription,
        "Take a subscription from a role",
    ),
    Endpoint(
        "GET", _TOPIC_PERMISSIONS, Right.ADMINISTER, get_topic_permissions, "Grants of a topic"
    ),
    Endpoint(
        "POST",
        f"{_TOPIC_PERMISSIONS}/{{role}}",
        Right.ADMINISTER,
        grant_topic,
        "Let a role use a topic",
    ),
    Endpoint(
        "DELETE",
        f"{_TOPIC_PERMISSIONS}/{{role}}",
        Right.ADMINISTER,
        revoke_topic,
        "Take a topic from a role",
    ),
)
