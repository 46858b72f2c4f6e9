"""`anabranch schemas`: the schemas of topics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.admin_places import (
    ForceOption,
    Noun,
    Server,
    TopicArgument,
    print_table,
)
from anabranch.cli.metadata_places import DryRunOption, print_json, value_text
from anabranch.errors import ConfigError

if TYPE_CHECKING:
    from anabranch.client import Schema
    from anabranch.client.admin import AdminClient, SchemaVersion

app = Noun("Schemas: look at them, add versions, ask what could be added.")
_Kind = Annotated[str, typer.Option("--type", help="Json, Avro, Protobuf, String and so on.")]
_File = Annotated[Path | None, typer.Option("--file", help="File with the schema's own text.")]


@app.command()
def show(
    server: Server,
    topic: TopicArgument,
    version: Annotated[int | None, typer.Option(help="Which; else the newest.")] = None,
) -> None:
    """Print a schema."""
    from anabranch.policies import to_json

    found = server.ask(
        lambda admin: (
            admin.schemas.get_newest(topic)
            if version is None
            else admin.schemas.get_version(topic, version)
        ),
    )
    if server.as_json:
        print_json(to_json(found))
        return
    print(value_text(found.data.encode()))


@app.command("list")
def list_versions(server: Server, topic: TopicArgument) -> None:
    """Print the versions of a topic's schema."""
    from anabranch.policies import to_json

    found = server.ask(lambda admin: admin.schemas.versions(topic))
    if server.as_json:
        print_json([to_json(each) for each in found])
        return
    rows = [(each.version, each.type, each.data) for each in found]
    print_table(("version", "type", "schema"), rows)


def _schema(kind: str, file: Path | None) -> "Schema":
    from anabranch.client import Schema

    try:
        text = b"" if file is None else file.read_bytes()
        text.decode()
    except OSError as error:
        raise ConfigError(f"--file {file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--file {file} is not UTF-8 text") from None
    schema = Schema(kind, text)
    schema.as_wire()  # refuses what the protocol does not know
    return schema


@app.command()
def add(
    server: Server,
    topic: TopicArgument,
    kind: _Kind,
    file: _File = None,
    dry_run: DryRunOption = False,
) -> None:
    """Add a version; with --dry-run only say whether it fits those that are there."""
    schema = _schema(kind, file)

    async def work(admin: "AdminClient") -> int | bool:
        if dry_run:
            return await admin.schemas.is_compatible(topic, schema)
        return await admin.schemas.add(topic, schema)

    found = server.ask(work)
    if not dry_run:
        server.done(f"{topic} has version {found}", topic=topic, version=found)
        return
    said = "could be added" if found else "would be refused: it does not fit those that are there"
    server.done(said, topic=topic, dry_run=True, compatible=bool(found))
    if not found:
        raise typer.Exit(1)


@app.command()
def delete(
    server: Server,
    topic: TopicArgument,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """End the schema of a topic; with --force its versions are removed too."""

    async def work(admin: "AdminClient") -> "list[SchemaVersion]":
        found = await admin.schemas.versions(topic)
        if not dry_run:
            await admin.schemas.delete(topic, force=force)
        return found

    found = server.ask(work)
    done = "would end" if dry_run else "ended"
    text = f"{done} the schema of {topic} with {len(found)} versions"
    server.done(text, topic=topic, versions=len(found), dry_run=dry_run)
