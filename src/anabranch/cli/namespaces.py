"""`anabranch namespaces`: making and deleting them, their policies and permissions."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.admin_places import (
    ForceOption,
    NamespaceArgument,
    Noun,
    Server,
)
from anabranch.cli.metadata_places import (
    DryRunOption,
    print_fields,
    print_json,
    safe,
)
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.client.admin import AdminClient, Policy

app = Noun("Namespaces: make and delete them, decide their policies, let roles in.")


def _offered() -> list[str]:
    from anabranch.client.admin import POLICIES

    return sorted(POLICIES)


def _complete(incomplete: str) -> list[str]:
    return [name for name in _offered() if name.startswith(incomplete)]


def _policy(name: str) -> "Policy[Any]":
    from anabranch.client.admin import POLICIES

    if name not in POLICIES:
        raise ConfigError(f"no policy {name!r}; there are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]


_PolicyName = Annotated[
    str,
    typer.Argument(metavar="POLICY", help="Such as retention.", autocompletion=_complete),
]


@app.command("list")
def list_namespaces(
    server: Server,
    tenant: Annotated[str, typer.Argument(help="Name of the tenant.")] = "public",
) -> None:
    """Print the namespaces of a tenant."""
    names = server.ask(lambda admin: admin.namespaces.names(tenant))
    server.names(names)


@app.command()
def create(
    server: Server,
    namespace: NamespaceArgument,
    bundles: Annotated[int, typer.Option(min=0, help="Bundles; 0 for the usual number.")] = 0,
) -> None:
    """Make a namespace."""
    server.ask(lambda admin: admin.namespaces.create(namespace, bundles=bundles))
    server.done(f"created {namespace}", namespace=namespace)


@app.command()
def delete(
    server: Server,
    namespace: NamespaceArgument,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete a namespace; with --force with all its topics and what they hold."""

    async def work(admin: "AdminClient") -> list[str]:
        topics = await admin.namespaces.topics(namespace)
        if not dry_run:
            await admin.namespaces.delete(namespace, force=force)
        return topics

    topics = server.ask(work)
    count = f"{len(topics)} topics"
    refused = f"{namespace} would be refused: it has {count}" if topics and not force else ""
    what = f"{namespace} with {count}"
    server.deleted(what, dry_run=dry_run, refused=refused, namespace=namespace, topics=topics)


@app.command()
def policies(server: Server, namespace: NamespaceArgument) -> None:
    """Print all that is decided for a namespace."""
    from anabranch.policies import to_json

    found = to_json(server.ask(lambda admin: admin.namespaces.policies(namespace)))
    if server.as_json:
        print_json(found)
        return
    for name, value in sorted(found.items()):
        if value not in ({}, []):
            print(f"{name:42} {safe(json.dumps(value))}")


@app.command("get-policy")
def get_policy(server: Server, namespace: NamespaceArgument, policy: _PolicyName) -> None:
    """Print one policy."""
    chosen = _policy(policy)
    found = server.ask(lambda admin: admin.namespaces.policy(namespace, chosen))
    value = None if found is None else chosen.write(found)
    if server.as_json:
        print_json({"policy": policy, "value": value})
    elif isinstance(value, dict):
        print_fields(value)
    else:
        print("not decided" if value is None else safe(json.dumps(value)))


@app.command("set-policy")
def set_policy(
    server: Server,
    namespace: NamespaceArgument,
    policy: _PolicyName,
    value: Annotated[str, typer.Argument(help="A number, true, false, a word, or JSON.")],
) -> None:
    """Decide one policy."""
    chosen = _policy(policy)
    wanted = chosen.read(_value(value))
    server.ask(lambda admin: admin.namespaces.set_policy(namespace, chosen, wanted))
    server.done(f"set {policy} of {namespace}", namespace=namespace, policy=policy)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if text[:1] in ("{", "["):
            raise ConfigError(f"VALUE is no JSON: {text!r}") from None
        return text


@app.command("clear-policy")
def clear_policy(server: Server, namespace: NamespaceArgument, policy: _PolicyName) -> None:
    """Leave one policy to the broker's own settings again."""
    chosen = _policy(policy)
    server.ask(lambda admin: admin.namespaces.clear_policy(namespace, chosen))
    server.done(f"cleared {policy} of {namespace}", namespace=namespace, policy=policy)


@app.command()
def permissions(server: Server, namespace: NamespaceArgument) -> None:
    """Print what each role may do."""
    found = server.ask(lambda admin: admin.namespaces.permissions(namespace))
    if server.as_json:
        print_json(found)
        return
    print_fields({role: ", ".join(actions) for role, actions in found.items()})


@app.command()
def grant(
    server: Server,
    namespace: NamespaceArgument,
    role: Annotated[str, typer.Argument(help="Who.")],
    actions: Annotated[list[str], typer.Argument(help="produce, consume and so on.")],
) -> None:
    """Let a role do something in a namespace."""
    server.ask(lambda admin: admin.namespaces.grant(namespace, role, actions))
    server.done(f"{role} may {', '.join(actions)}", namespace=namespace, role=role)


@app.command()
def revoke(
    server: Server,
    namespace: NamespaceArgument,
    role: Annotated[str, typer.Argument(help="Who.")],
) -> None:
    """Take back all that a role may do in a namespace."""
    server.ask(lambda admin: admin.namespaces.revoke(namespace, role))
    server.done(f"{role} may nothing", namespace=namespace, role=role)
