"""`anabranch metadata`: serve a metadata store; look into, change, copy and compare any."""

import os
from typing import TYPE_CHECKING

import typer

from anabranch.cli import metadata_copies, metadata_nodes, metadata_watch
from anabranch.cli.standalone import setting_help
from anabranch.server.settings import SETTINGS

if TYPE_CHECKING:
    from anabranch.server.metadata_service import MetadataService

app = typer.Typer(
    help="Metadata stores: serve one; look into, change, copy and compare any.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _help(name: str) -> str:
    return setting_help(SETTINGS[name])


@app.callback()
def metadata() -> None:
    """Metadata stores: serve one; look into, change, copy and compare any."""


@app.command()
def serve(
    data: str | None = typer.Option(None, help=_help("data")),
    host: str | None = typer.Option(None, help=_help("host")),
    port: int | None = typer.Option(None, help=_help("metadata_port")),
    advertised_address: str | None = typer.Option(None, help=_help("advertised_address")),
    log_level: str | None = typer.Option(None, help=_help("log_level")),
    log_format: str | None = typer.Option(None, help=_help("log_format")),
    config: str | None = typer.Option(
        None, help="TOML file with settings; flags and the environment win over it."
    ),
) -> None:
    """Serve the metadata in a data folder in the foreground; Ctrl-C stops it.

    Other processes reach it with `--metadata-url anabranch://HOST:PORT`. Their sessions live on
    over a restart of this one.

    Exit code 0: stopped; 1: a mistake in the program; 2: not started; 3: the store failed; 130:
    ended at once by a second Ctrl-C.
    """
    from anabranch.server.settings_sources import load_settings

    flags = {
        "data": data,
        "host": host,
        "metadata_port": port,
        "advertised_address": advertised_address,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings = load_settings(flags=flags, environment=os.environ, config_file=config)
    from anabranch.server.process import run_metadata

    raise typer.Exit(run_metadata(settings, announce=_announce))


app.command("get")(metadata_nodes.get)
app.command("put")(metadata_nodes.put)
app.command("delete")(metadata_nodes.delete)
app.command("ls")(metadata_nodes.list_children)
app.command("tree")(metadata_nodes.tree)
app.command("watch")(metadata_watch.watch)
app.command("stat")(metadata_nodes.stat)
app.command("export")(metadata_copies.export)
app.command("restore")(metadata_copies.restore)
app.command("copy")(metadata_copies.copy)
app.command("diff")(metadata_copies.diff)


def _announce(service: "MetadataService") -> None:
    print(f"anabranch metadata is ready: {service.url}")
    print(f"data is kept in {service.data_place}; Ctrl-C stops the server", flush=True)
